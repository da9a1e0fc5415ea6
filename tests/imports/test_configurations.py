"""Ten configurations of each product: every setting of them is reported, and what is written lints clean."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headgate import policy as documents
from headgate_coordinator.imports.activemq import broker as activemq
from headgate_coordinator.imports.artemis import broker as artemis
from headgate_coordinator.imports.blazingmq import files as blazingmq
from headgate_coordinator.imports.ems import files as ems
from headgate_coordinator.imports.rabbitmq import definitions as rabbitmq
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.policy.lint import lint
from tests.docs.imports_page import PRODUCTS
from tests.imports.counting import settings_of, silent

READERS: dict[str, Callable[[Sequence[Path]], Imported]] = {
    "activemq": activemq.read,
    "artemis": artemis.read,
    "blazingmq": blazingmq.read,
    "ems": ems.read,
    "rabbitmq": rabbitmq.read,
}


CONFIGURATIONS = Path(__file__).parent / "configurations"
"""A folder a product, in it one a configuration: as documents show them, as sites have them, and nonsense."""


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_setting_of_ten_configurations_is_reported(product: str) -> None:
    folders = sorted((CONFIGURATIONS / product).iterdir())
    assert len(folders) == 10
    count = 0
    for folder in folders:
        files = sorted(folder.iterdir())
        imported = READERS[product](files)
        assert not lint(documents.loads(imported.document)), folder
        assert "pa55" not in f"{imported.rows}{imported.document}"
        for file in files:
            said = settings_of(file)
            assert silent(said, [row for row in imported.rows if row.file == file.name]) == [], file
            count += len(said)
    assert count > 30


def test_a_setting_that_no_row_is_about_is_found(tmp_path: Path) -> None:
    for name, text in {"a.xml": "<a b='1'/>", "a.json": '{"b": 1}', "a.conf": "b=1\n"}.items():
        (tmp_path / name).write_text(text)
        assert silent(settings_of(tmp_path / name), []) == [(1, "b", "1")]
