"""Admin HTTP as its clients see it: the application itself, and a real server with a browser before it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette

import headgate
from headgate_coordinator.admin import AdminServer, create_app
from headgate_coordinator.fleet.node_facts import NodeView
from tests.admin.browser import TEXT, Browser
from tests.admin.raw_http import MOST
from tests.admin.site import Site
from tests.admin.standin import StandIn
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

Http = httpx.AsyncClient
Open = Callable[..., "AsyncIterator[Http]"]


@pytest.fixture
def url(cleanup_namespace: str, shared_servers: SharedServers) -> str:
    """A single server, where the version makes no difference."""
    return shared_servers.standalone(newest_server())


@pytest.fixture
async def client(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(url, namespace=namespace) as client:
        yield client


@pytest.fixture
def node() -> StandIn:
    return StandIn()


@pytest.fixture
async def open_http() -> AsyncIterator[Callable[..., object]]:
    """Returns how to open HTTP clients of applications; they and their applications end with the test."""
    async with AsyncExitStack() as stack:

        async def open_one(
            client: headgate.Client, node: NodeView | None = None, *, token: str | None = None, **settings: object
        ) -> Http:
            app = create_app(client, node, token=token, hosts=("node.example",), **settings)  # type: ignore[arg-type]
            return await stack.enter_async_context(_Running(app))

        yield open_one


@pytest.fixture
async def http(client: headgate.Client, node: StandIn, open_http: Callable[..., object]) -> Http:
    found: Http = await open_http(client, node)  # type: ignore[misc]
    return found


class _Running:
    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Http:
        await self._stack.enter_async_context(self._app.router.lifespan_context(self._app))
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=True)
        # verify=False: there is no TLS, and to read the certificates of this machine takes longer than most tests.
        return await self._stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://node.example", verify=False)
        )

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@pytest.fixture
async def port(client: headgate.Client) -> AsyncIterator[int]:
    """Start admin HTTP without a token, with a limiter ``llm``."""
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": MOST}})
    server = AdminServer(create_app(client, None, token=None), token=None)
    yield await server.start()
    await server.close()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser.start(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A page that may log no error; and nothing but its own node is asked for anything."""
    chromium.open("about:blank")
    chromium.look_like(1280, 900)
    chromium.console()
    chromium.requests()
    yield chromium
    chromium.open("about:blank")


@pytest.fixture
def site(cleanup_namespace: str, shared_servers: SharedServers) -> Iterator[Site]:
    with Site(shared_servers.standalone(newest_server()), cleanup_namespace) as site:
        yield site


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Browser]:
    browser.open(site.url)
    browser.wait(f"{TEXT}.includes('live')", "#status")
    yield browser
    assert browser.console() == []
    hosts = {urlsplit(url).netloc for url in browser.requests() if not url.startswith(("data:", "chrome:", "about:"))}
    assert hosts <= {urlsplit(site.url).netloc}, "no request leaves the origin"
