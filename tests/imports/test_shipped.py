"""Configurations that products ship: every setting is reported, and policies lint clean, where they are there."""

from pathlib import Path

import pytest

from headgate import policy as documents
from headgate_coordinator.policy.lint import lint
from tests.imports.counting import settings_of, silent
from tests.imports.test_configurations import READERS
from tests.kit.starting import CACHE


def shipped() -> list[Path]:
    """Return the configurations of brokers that distributions have which the conformance kit fetched."""
    files = (*CACHE.glob("*/conf/activemq*.xml"), *CACHE.glob("*/examples/**/activemq*.xml"))
    return sorted((*files, *CACHE.glob("*/examples/**/broker.xml")))


def test_every_setting_of_what_is_shipped_is_reported() -> None:
    if not (files := shipped()):
        pytest.skip("no distribution is there: `python -m tests.kit --start activemq` fetches one")
    count = 0
    for file in files:
        imported = READERS["artemis" if file.name == "broker.xml" else "activemq"]([file])
        settings = settings_of(file)
        assert silent(settings, imported.rows) == [], file
        assert not lint(documents.loads(imported.document)), file
        count += len(settings)
    assert count > len(files)
