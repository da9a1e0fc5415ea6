"""A setting is a row of one table: a row more there is enough for whoever sets it, writes it, or reads about it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

ROW = """\
    nap: float | str | None = _row(DURATION, field="nap_ms", path="producer.nap", kinds=MESSAGES, doc=
        "seconds that a producer sleeps.")
    def fields(self)"""
PROGRAM = f"""
import importlib.abc, importlib.util, sys
from pathlib import Path

import headgate.errors
from headgate.core import settings_table  # where it is

source = Path(settings_table.__file__).read_text(encoding="utf-8")
for name in [name for name in sys.modules if name.split(".")[0] == "headgate"]:
    del sys.modules[name]
changed = source.replace("    def fields(self)", {ROW!r}, 1)
assert changed != source


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "headgate.core.settings_table" else None

    def exec_module(self, module):
        exec(compile(changed, "settings_table", "exec"), module.__dict__)


sys.meta_path.insert(0, Changed())

from headgate import PolicyError, Settings
from headgate.core.foreign_words import hint
from headgate.policy import loads
from headgate.policy.compile import key_of
from headgate.policy.document import schema
from headgate.settings import DEFAULTS, settings_of
from tests.docs.settings_page import page

assert Settings(nap="3s").fields() == {{"nap_ms": "3000"}} == settings_of({{"nap": 3}}).fields()
assert Settings(nap="default").fields() == {{"nap_ms": ""}}
assert DEFAULTS["nap_ms"] == ""
assert "nap: seconds that a producer sleeps." in Settings.__doc__
try:
    Settings(kind="gate", nap=3).fields()
except PolicyError as error:
    assert "nap belongs to a queue or a topic" in str(error)
else:
    raise AssertionError
rules = loads("[[destination]]\\nmatch = 'a'\\nproducer.nap = '3s'", "shop.toml").resolve("a", "queue")
assert (rules.fields["nap_ms"], rules.origins["nap_ms"]) == ("3000", "a@shop.toml:3")
assert schema()["$defs"]["Producer"]["properties"]["nap"]["description"] == "seconds that a producer sleeps."
assert key_of("nap_ms") == "producer.nap"
assert "'producer.nap'" in hint("nap", "policy")
assert "| `nap` | `nap_ms` | seconds that a producer sleeps. |" in page()
"""


def test_a_row_more_is_enough() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
