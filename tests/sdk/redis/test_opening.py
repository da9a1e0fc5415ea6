"""What a first connection that fails says, where what was asked and what is there do not fit."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headgate
from headgate.redis import connection_options

Door = tuple[int, int]


@pytest.fixture
async def doors() -> AsyncIterator[Door]:
    """Ports of something that hangs up once it is spoken to, as what wants TLS does, and of something silent."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_server(hang_up, "127.0.0.1", 0) as closed,
        await asyncio.start_server(listen, "127.0.0.1", 0) as silent,
    ):
        yield closed.sockets[0].getsockname()[1], silent.sockets[0].getsockname()[1]


async def refusal(url: str) -> str:
    with pytest.raises(headgate.HeadgateError) as caught:
        await headgate.connect(url)
    return str(caught.value)


async def test_tls_at_one_end_alone_is_named(doors: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis without TLS waits for the end of a greeting that it takes for a command, and one with TLS hangs up."""
    monkeypatch.setattr(connection_options, "CONNECT_TIMEOUT", 0.2)
    closed, silent = doors
    for kind in ("", "+cluster"):
        text = await refusal(f"redis{kind}://127.0.0.1:{closed}")
        assert text.endswith(f"; perhaps it wants TLS there: then the URL begins with rediss{kind}://")
        text = await refusal(f"rediss{kind}://127.0.0.1:{silent}")
        assert text.endswith(f"; perhaps it speaks no TLS there: then the URL begins with redis{kind}://")


async def test_nothing_is_said_of_tls_where_nobody_listens_or_no_name_is_known() -> None:
    for url in ("redis://127.0.0.1:1", "rediss://127.0.0.1:1", "rediss://nohost.invalid", "unix:///nonexistent.sock"):
        assert "TLS" not in await refusal(url)


async def test_a_file_that_is_no_certificate_says_what_it_is_to_be(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(b"\0" * 99)
    text = await refusal(f"rediss://127.0.0.1:1?ca_file={file}")
    assert f"ca_file '{file}'" in text
    assert "files are in PEM" in text
