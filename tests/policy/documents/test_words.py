"""Words of other brokers in a policy, words by hand in a policy, and sizes that count in thousands."""

from pathlib import Path

import pytest

from headgate.core.foreign_words import foreign
from headgate.core.settings_table import PATHS
from headgate.policy import BadDocument, loads, note
from tests.demo.command import run
from tests.sdk.redis.test_words import EVERY, names_ours
from tests.support.extent import each

RULE = "[[destination]]\nmatch = 'a'\n"


@each("table", ["", RULE, RULE + "[destination.consumer]\n", "[[pool]]\nname = 'p'\nlimit = 5\n"])
@each("word", EVERY)
def test_a_foreign_word_is_told_with_ours_at_every_table(word: str, table: str) -> None:
    if word in ("flow_control", "maxrate") and not table:
        return  # there they are ours too, or nearly
    found = foreign(word)
    assert found
    with pytest.raises(BadDocument) as caught:
        loads(f"{table}'{word}' = 5\n")
    (problem,) = caught.value.problems
    assert problem.text.startswith("unknown key; ")
    assert problem.line == table.count("\n") + 1
    assert names_ours(problem.text, found[1].setting)


@each("setting", [name for name, path in PATHS.items() if len(path) > 1 and path[0] != name])
def test_a_setting_as_it_is_called_by_hand_is_told_its_place(setting: str) -> None:
    with pytest.raises(BadDocument) as caught:
        loads(f"{RULE}{setting} = 5\n")
    assert f"did you mean '{'.'.join(map(str, PATHS[setting]))}'?" in str(caught.value)


@pytest.mark.parametrize(("key", "ours"), [("deliveries", "shared_rate"), ("delivery_burst", "shared_burst")])
def test_the_rate_of_deliveries_is_told_its_place_where_that_of_senders_is(key: str, ours: str) -> None:
    with pytest.raises(BadDocument, match=rf"rate.{key}: unknown key; did you mean 'consumer.{ours}'\?"):
        loads(f"{RULE}rate = {{ messages = 9, {key} = 5 }}\n")


@pytest.mark.parametrize(
    ("text", "place", "key", "said"),
    [
        (RULE + 'limit = "64 mb"', 3, "destination[1].limit", "'64 mb' is 64000000 bytes"),
        (RULE + 'hard_limit = "1MiB"\nlimit = "20KB"\n', 4, "destination[1].limit", "'20KiB' is 20480"),
        (
            RULE + '[[destination]]\nmatch = "b"\nrate.bytes = "1.5mb/s"',
            5,
            "destination[2].rate.bytes",
            "1500000 bytes",
        ),
        ("[[pool]]\nname = 'p'\nlimit = '1GB'\n" + RULE + "limit = '5kb'", 3, "pool[1].limit", "'1GiB' is 1073741824"),
    ],
)
def test_the_first_size_in_thousands_is_told(tmp_path: Path, text: str, place: int, key: str, said: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    found = note(file)
    assert found is not None
    assert (found.place, found.key) == (f"x.toml:{place}", key)
    assert said in found.text


def test_nothing_is_told_of_other_sizes_and_of_names(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(RULE.replace("'a'", "'5mb'") + "limit = '1MiB'\ndead_letter = 'x'\nhard_limit = 5000000\n")
    assert note(file) is None


def test_the_checks_of_a_policy_tell_it_once_and_pass(tmp_path: Path, redis_url: str, cleanup_namespace: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(RULE + "limit = '64mb'\nhard_limit = '65mb'\n")
    where = ("--redis", redis_url, "--namespace", cleanup_namespace)
    for command in (("lint", str(file)), ("apply", str(file), "--dry-run", *where)):
        done = run("policy", *command)
        assert done.returncode == 0
        assert done.stderr == (
            "headgate: x.toml:3: destination[1].limit: '64mb' is 64000000 bytes: KB, MB, GB and TB count in thousands; "
            "'64MiB' is 67108864\n"
        )


def test_who_says_url_is_told_the_option_that_says_where_redis_is() -> None:
    for command in (["status"], ["user", "list"]):
        done = run(*command, "--url", "redis://localhost")
        assert done.returncode == 2
        assert "No such option: --url; --redis URL says where Redis is" in " ".join(done.stderr.split())
    done = run("policy", "schema", "--url", "x")
    assert "--redis" not in done.stderr


def test_an_option_of_another_broker_on_the_command_line_is_told() -> None:
    done = run("node", "--memory-limit", "1mb")
    assert done.returncode == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert "No such option: --memory-limit; in ActiveMQ Classic it is" in said
    assert "a policy says it as limit.bytes" in said
