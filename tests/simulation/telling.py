"""Tell histories by their seeds, and show the shortest that breaks a promise; a process of its own tells many:

``python -m tests.simulation.telling cluster:0-999 nodes:17``
"""

import sys
import time
from collections.abc import Sequence

from tests.simulation.drawing import SCENES, Event, drawn, shortest
from tests.simulation.history import History
from tests.simulation.mutants import Mutant
from tests.simulation.server import CONFIG, Backing
from tests.support.servers import newest_server


def told(
    backing: Backing, scene: str, seed: int, mutant: Mutant | None = None, events: Sequence[Event] | None = None
) -> History:
    history = History(backing, seed, scene, events, rewrite=mutant.script if mutant else None)
    history.tell()
    return history


def story_of(backing: Backing, scene: str, seed: int, broken: str, mutant: Mutant | None = None) -> str:
    """Return the shortest history that breaks the same promise, event by event, and how it ends."""
    promise = broken.partition(":")[0]

    def fails(events: Sequence[Event]) -> bool:
        return any(one.startswith(f"{promise}:") for one in told(backing, scene, seed, mutant, events).oracle.broken)

    events = shortest(drawn(seed, SCENES[scene]), fails)
    ends = told(backing, scene, seed, mutant, events)
    happened = [" ".join(map(str, line)) for line in ends.world.log[-40:]]
    first = f"{scene}:{seed} breaks {(ends.oracle.broken or [broken])[0]}"
    return "\n".join([first, *map(str, events), "and ends with", *happened])


def line_of(history: History, scene: str) -> str:
    """Return what is the same whenever a seed is told."""
    world = history.world
    return f"{scene}:{history.seed} {len(world.log)} lines {world.events} events, sum {world.sum:08x}"


def main(wanted: Sequence[str]) -> int:
    red = 0
    with newest_server().start(config=CONFIG) as server:
        backing = Backing(str(server.directory / "redis.sock"))
        for scene, _, named in (one.partition(":") for one in wanted):
            first, _, last = named.partition("-")
            begun, took = time.time(), time.process_time()
            for seed in range(int(first), int(last or first) + 1):
                history = told(backing, scene, seed)
                if not last:
                    print(line_of(history, scene))
                if broken := history.oracle.broken:
                    red += 1
                    print(story_of(backing, scene, seed, broken[0]), flush=True)
            if last:
                each = int(last) + 1 - int(first)
                took, lasted = (time.process_time() - took) / each, (time.time() - begun) / each
                print(f"{scene}:{named} {took:.3f} s of a processor and {lasted:.3f} s each, {red} red", flush=True)
        backing.close()
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
