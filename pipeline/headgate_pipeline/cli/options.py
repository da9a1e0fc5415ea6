"""Each job takes these options, which say where entries come from."""

from pathlib import Path
from typing import Annotated

import typer

Input = Annotated[Path | None, typer.Option("--input", metavar="DIR", help="Folder of ingested entries, in Parquet.")]
Redis = Annotated[
    str | None, typer.Option(metavar="URL", envvar="HEADGATE_URL", help="Read the ledgers of this Redis.")
]
Namespace = Annotated[
    str, typer.Option(metavar="NAME", envvar="HEADGATE_NAMESPACE", help="Namespace of the destinations.")
]
