"""Configurations that products ship: every setting is reported, and policies lint clean, where they are there."""

import os
from pathlib import Path

import pytest

from headgate import policy as documents
from headgate_coordinator.policy.lint import lint
from tests.docs.imports_page import PRODUCTS
from tests.imports.counting import settings_of, silent
from tests.imports.test_configurations import READERS
from tests.kit.starting import CACHE

SAMPLES = Path(os.environ.get("HEADGATE_SAMPLES", "none"))
"""A folder with one of each product, in it configurations of others that are not ours to keep here."""


def test_every_setting_of_what_others_have_is_reported() -> None:
    globs = [(product, form) for product in PRODUCTS for form in ("conf", "json", "xml")]
    files = [(product, file) for product, form in globs for file in SAMPLES.glob(f"{product}/**/*.{form}")]
    if not files:
        pytest.skip("HEADGATE_SAMPLES names no folder with configurations of others")
    for product, file in files:
        imported = READERS[product]([file])
        assert silent(settings_of(file), imported.rows) == [], file
        assert not lint(documents.loads(imported.document)), file


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
