"""ActiveMQ Classic as Debian packages it, started for one measurement with a private directory."""

import asyncio
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

HOME = Path("/usr/share/activemq")
HEAP = "1536m"
STARTS_WITHIN = 60

_LOG = """log4j.rootLogger=WARN, c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%d %-5p %c{1} - %m%n
"""

# vmQueueCursor: with the default cursor, persistent messages go to disk beyond the limit, and nobody is blocked.
# "one" holds a single message of 1 KiB, for which the broker counts 2 KiB.
_BROKER = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
   http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
   http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
 <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false" persistent="true"
   schedulerSupport="false" dataDirectory="{data}">
  <destinationPolicy><policyMap><policyEntries>
   <policyEntry queue="tight.>" producerFlowControl="true" memoryLimit="1mb">
    <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry>
   <policyEntry queue="one.>" producerFlowControl="true" memoryLimit="2kb">
    <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry>
   <policyEntry queue=">" producerFlowControl="true" memoryLimit="512mb">
    <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry>
  </policyEntries></policyMap></destinationPolicy>
  <systemUsage><systemUsage><memoryUsage><memoryUsage limit="768 mb"/></memoryUsage>
   <storeUsage><storeUsage limit="4 gb"/></storeUsage><tempUsage><tempUsage limit="256 mb"/></tempUsage>
  </systemUsage></systemUsage>
  <persistenceAdapter><kahaDB directory="{data}/kahadb" journalMaxFileLength="32mb"/></persistenceAdapter>
  <transportConnectors><transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/></transportConnectors>
 </broker></beans>
"""

_OPEN = ("security", "net", "lang", "util", "util.concurrent", "util.concurrent.atomic")


@dataclass(frozen=True, slots=True)
class ActiveMQ:
    """A running ActiveMQ.

    Attributes:
        port: of STOMP.
        pid: its process.
    """

    port: int
    pid: int


def missing() -> str:
    """Return what is not installed; empty when all is there."""
    if shutil.which("java") is None:
        return "no java on PATH"
    return (
        "" if (HOME / "bin/activemq.jar").exists() else f"no ActiveMQ in {HOME} (on Debian: apt-get install activemq)"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _listens(port: int, process: asyncio.subprocess.Process) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            if process.returncode is not None:
                raise RuntimeError(f"ActiveMQ ended with status {process.returncode}") from None
            await asyncio.sleep(0.2)
        else:
            writer.close()
            return


@asynccontextmanager
async def running_activemq() -> AsyncIterator[ActiveMQ]:
    """Yield an ActiveMQ of our own: STOMP on a free port, data in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="hg-activemq-", ignore_cleanup_errors=True) as base:
        for part in ("conf", "data", "tmp"):
            (Path(base) / part).mkdir()
        conf, port = Path(base) / "conf", _free_port()
        (conf / "log4j.properties").write_text(_LOG)
        (conf / "activemq.xml").write_text(_BROKER.format(data=f"{base}/data", port=port))
        opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPEN]
        process = await asyncio.create_subprocess_exec(
            "java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={base}/tmp", "-Dorg.apache.activemq.UseDedicatedTaskRunner=false",
            "--add-reads=java.xml=java.logging", *opened, "--add-opens=java.naming/javax.naming.spi=ALL-UNNAMED",
            "--add-opens=java.rmi/sun.rmi.transport.tcp=ALL-UNNAMED", f"-Dactivemq.classpath={conf}:",
            f"-Dactivemq.home={HOME}", f"-Dactivemq.base={base}", f"-Dactivemq.conf={conf}",
            f"-Dactivemq.data={base}/data", "-jar", str(HOME / "bin/activemq.jar"), "start",
            f"xbean:file:{conf}/activemq.xml", stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        try:
            await asyncio.wait_for(_listens(port, process), STARTS_WITHIN)
            yield ActiveMQ(port, process.pid)
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()
