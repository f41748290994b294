"""Who this workload is: where each secret comes from, and who is told when it changes.

Source: xds-identity-dns.md sections 4.7, 5.3, 5.8 and 5.9; deviations D-2, D-6, D-16 and D-25.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from agent.credentials.client import keep_fresh
from agent.credentials.files import usable_roots
from agent.credentials.places import system_root
from agent.errors import SecretError
from agent.identity import report
from agent.identity.authority import Csr, Issued
from agent.identity.bundle import merge, read_trust_bundle
from agent.identity.client import CertificateAuthority
from agent.identity.files import CRL_PATH, write_output
from agent.identity.modes import Mode, reads_back
from agent.identity.names import (
    SYSTEM_ROOT,
    WORKLOAD,
    WORKLOAD_ROOT,
    FileResource,
    file_resource,
)
from agent.identity.process import CsrChild, spawn
from agent.identity.renewal.run import Clock, Workload
from agent.identity.rotation import retry_delay
from agent.identity.secret import KeyPair, Roots, Secret
from agent.identity.server import Recorder, SdsServer
from agent.identity.settings import IdentitySettings, OutputSettings
from agent.identity.watch.run import FileSecrets

__all__ = ["Identity", "Recorder", "serving"]

log = logging.getLogger(__name__)

EXPIRY: Final = "cert_expiry_seconds"
CLOCK: Final = Clock()


class Identity:
    """This workload's secrets."""

    def __init__(
        self,
        settings: IdentitySettings,
        mode: Mode,
        *,
        recorder: Recorder,
        rng: Callable[[], float],
        first: CsrChild | None,
        clock: Clock,
        crl_path: str,
    ) -> None:
        self._settings = settings
        self._mode = mode
        self._recorder = recorder
        self._rng = rng
        self._first = first
        self._clock = clock
        self._crl_path = crl_path if settings.crl else ""
        self._reads_back = reads_back(mode, settings, os.path.realpath)
        self._system_root = system_root(SYSTEM_ROOT, os.path.isfile).path
        self._trust_bundle = b""
        self._output_problem = ""
        self._changed = asyncio.Event()
        self.server = SdsServer(self.secret, settings.key_provider, recorder)
        self.files = FileSecrets(
            debounce_seconds=settings.debounce_seconds,
            changed=self._publish,
            wanted=self._wanted,
            count=recorder.add,
            rng=rng,
        )
        self.workload = Workload(
            settings.rotation,
            CertificateAuthority(settings.authority, count=recorder.add, rng=rng),
            make_csr=self._make_csr,
            renewed=self._renewed,
            rng=rng,
            clock=clock,
        )

    async def secret(self, name: str) -> Secret:
        """Return the secret of a resource name, by the order of section 5.3.

        Raises:
            SecretError: there is none, and there has been none that is still good.
        """
        if name == WORKLOAD:
            return await self._pair()
        if name == WORKLOAD_ROOT:
            return (await self._roots())._replace(crl=await self._crl())
        if name == SYSTEM_ROOT:
            if not self._system_root:
                raise SecretError("this system has no trust store; install ca-certificates")
            return await self.files.get(name, FileResource(self._system_root))
        try:
            resource = file_resource(name)
        except ValueError as error:
            raise SecretError(str(error)) from None
        return await self.files.get(name, resource)

    async def take_proxy_config(self, raw: bytes | None) -> None:
        """Take the trust bundle of a ProxyConfig from the control plane (PCDS).

        Raises:
            ValueError: it cannot be read, or holds no certificate.
        """
        bundle = read_trust_bundle(raw or b"")
        if bundle:
            bundle = merge(usable_roots(bundle, "ProxyConfig caCertificatesPem"))
        if raw is None or bundle == self._trust_bundle:
            return
        self._trust_bundle = bundle
        log.info("changed trust bundle certificates=%d", bundle.count(b"BEGIN CERTIFICATE"))
        self._publish(WORKLOAD_ROOT)
        # The CA may sign by another root now; what is in use stays so until it has.
        self.workload.renew()

    def problem(self) -> str | None:
        """Return what is wrong now, for people; none if nothing is."""
        problems = self.files.problems()
        if self.workload.problem:
            problems[WORKLOAD] = self.workload.problem
        texts = [f"secret {name}: {text}" for name, text in problems.items()]
        return "; ".join(filter(None, (self.server.problem, *texts, self._output_problem))) or None

    def collect(self) -> None:
        """Set what is computed when metrics are scraped."""
        left = self.workload.seconds_left()
        if left is not None:
            self._recorder.set(EXPIRY, left, resource_name=WORKLOAD)

    def document(self) -> report.Document:
        """Return what is served now, for people: certificates, never a key."""
        held = self.workload.held
        pair, roots = self.files.content(WORKLOAD), self.files.content(WORKLOAD_ROOT)
        is_mounted = isinstance(pair, KeyPair) and self._is_mounted(self._mode.pair)
        source = f"issued by {held.issuer}" if held else ""
        chain = held.issued.chain if held else b""
        if is_mounted and isinstance(pair, KeyPair):
            source, chain = f"mounted at {self._mode.pair.certificate}", pair.chain
        elif self._mode.files_only:
            source = "served by another SDS server"
        root_pem = roots.pem if isinstance(roots, Roots) else held.issued.roots if held else b""
        renewal = None if is_mounted else self.workload.seconds_to_renewal()
        others = self.server.subscribed() - {WORKLOAD, WORKLOAD_ROOT}
        return report.document(
            report.Facts(
                spiffe_id=self._settings.key.spiffe_id,
                trust_domain=self._settings.trust_domain,
                source=source,
                chain=chain,
                roots=merge(root_pem, self._trust_bundle),
                next_renewal=None if renewal is None else self._clock.now().wall + renewal,
                problem=self.workload.problem,
                files={name: self._certificates(name) for name in others},
                file_problems=self.files.problems(),
            )
        )

    def close(self) -> None:
        """Leave no child behind."""
        if self._first:
            self._first.close()

    async def keep(self) -> None:
        """Have a certificate before anybody asks, and write it where asked to, for ever."""
        failures = 0
        while True:
            self._changed.clear()
            try:
                pair, roots = await self._pair(), await self._roots()
                if self._settings.output:
                    await self._write(self._settings.output, pair, roots)
            except SecretError as error:
                failures += 1
                delay = retry_delay(failures, self._rng)
                log.warning(
                    "certificates not ready retry_in_seconds=%.1f reason=%r", delay, str(error)
                )
                await self._clock.wait(self._changed, delay)
            else:
                failures = 0
                await self._changed.wait()  # for ever: the next renewal sets it

    async def _write(self, output: OutputSettings, pair: KeyPair, roots: Roots) -> None:
        """Write for others; in a thread, as a disk may have us wait."""
        try:
            written = await asyncio.to_thread(write_output, output, pair, roots.pem)
        except OSError as error:
            self._output_problem = (
                f"OUTPUT_CERTS={output.directory}: {error.strerror}; expected a directory with "
                f"space that user {os.geteuid()} may write to"
            )
            raise SecretError(self._output_problem) from error
        self._output_problem = ""
        if written:
            log.info("wrote files=%s directory=%s", ",".join(written), output.directory)

    async def _pair(self) -> KeyPair:
        if self._is_mounted(self._mode.pair):
            found = await self.files.get(WORKLOAD, self._mode.pair)
            assert isinstance(found, KeyPair)  # noqa: S101 - it has a key
            return found
        issued = await self._issued()
        return KeyPair(issued.chain, issued.key)

    async def _roots(self) -> Roots:
        if self._is_mounted(self._mode.root):
            found = await self.files.get(WORKLOAD_ROOT, self._mode.root)
            assert isinstance(found, Roots)  # noqa: S101 - it has no key
            pem = found.pem
        else:
            # They outlast the certificate that they came with.
            held = self.workload.held
            pem = held.issued.roots if held else (await self._issued()).roots
        return Roots(merge(pem, self._trust_bundle))

    async def _crl(self) -> bytes:
        # Only with these roots: with others Envoy would refuse chains whose CAs have none (D-2).
        return await self.files.crl(WORKLOAD_ROOT, self._crl_path) if self._crl_path else b""

    async def _issued(self) -> Issued:
        if not self._mode.has_authority:
            raise SecretError(
                "attempted to fetch secret, but ca client is nil: expected files in "
                f"{self._mode.directory}"
            )
        return await self.workload.get()

    def _is_mounted(self, resource: FileResource) -> bool:
        """Return whether files that come before the CA are there, and not empty."""
        return not self._reads_back and all(map(_has_content, filter(None, resource)))

    async def _make_csr(self) -> Csr:
        child, self._first = self._first, None
        return await (child or spawn(self._settings.key)).result()

    def _renewed(self, before: Issued | None, issued: Issued) -> None:
        """Tell of a new certificate; of its root first, so that it is trusted when used (C8)."""
        wanted, names = f"URI:{self._settings.key.spiffe_id}", issued.leaf.names
        if wanted not in names:  # istiod's CA goes by the token alone: the mesh may be content
            log.warning("certificate for somebody else expected=%s found=%s", wanted, names)
        if before is None or before.roots != issued.roots:
            self._publish(WORKLOAD_ROOT)
        self._publish(WORKLOAD)

    def _publish(self, name: str) -> None:
        self.server.publish(name)
        if name in (WORKLOAD, WORKLOAD_ROOT):
            self._changed.set()

    def _wanted(self) -> set[str]:
        return {WORKLOAD, WORKLOAD_ROOT} | self.server.subscribed()

    def _certificates(self, name: str) -> bytes:
        content = self.files.content(name)
        if isinstance(content, KeyPair):
            return content.chain
        return content.pem if isinstance(content, Roots) else b""


def _has_content(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0  # noqa: PTH202 - strings throughout
    except OSError:
        return False


@asynccontextmanager
async def serving(
    settings: IdentitySettings,
    mode: Mode,
    *,
    recorder: Recorder,
    rng: Callable[[], float],
    first: CsrChild | None = None,
    clock: Clock = CLOCK,
    crl_path: str = CRL_PATH,
) -> AsyncIterator[Identity]:
    """Serve SDS to Envoy while the context is open; the socket listens once it is entered.

    Args:
        settings: the branch of identity.
        mode: where certificates come from; see modes.py.
        recorder: where figures go.
        rng: chance, in [0, 1).
        first: a child that makes the first key and CSR already.
        clock: tells the time.
        crl_path: where revoked certificates are.
    """
    identity = Identity(
        settings, mode, recorder=recorder, rng=rng, first=first, clock=clock, crl_path=crl_path
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            loops = [identity.files.run(), identity.workload.run()]
            if settings.authority.token.metadata_host:
                loops.append(keep_fresh(settings.authority.token))
            if _must_keep(settings, mode):
                loops.append(identity.keep())
            running = [tasks.create_task(loop) for loop in loops]
            if settings.envoy_enabled:
                async with identity.server.serving(mode.socket_path, tasks):
                    yield identity
            else:
                yield identity
            for task in running:
                task.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the first to fail stopped the others
    finally:
        identity.close()


def _must_keep(settings: IdentitySettings, mode: Mode) -> bool:
    """Return whether a certificate is needed even if Envoy never asks for one."""
    if mode.files_only:
        return False
    warm = mode.has_authority and settings.warm_up
    return warm or settings.output is not None
