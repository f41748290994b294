"""The client's end of TLS over memory, which offers what a policy allows and nothing else.

Neither gRPC nor the ssl module can be told all of that: not the suites of TLS 1.3, not a list of
groups, and many a system's OpenSSL has no X25519MLKEM768. The OpenSSL inside `cryptography` can; it
is used through the bindings by which pyOpenSSL uses it, as that is 6 MB and 30 ms more.

Source: xds-identity-dns.md section 2.2.
"""

import contextlib
import ipaddress
import re
from typing import Any, Final, TypeAlias

from agent.channel.policies import Policy
from agent.credentials.x509 import certificate_pem, certificates

ALPN: Final = b"\x02h2"
RECORD_BYTES: Final = 16 * 1024
HOST: Final = rb"[^.\0][^\0]{,252}"
#: An X509_V_ERR: the certificate is another server's.
NAME_ERRORS: Final = (62, 64)

#: Neither functions in C nor what they return have types.
Bindings: TypeAlias = Any
Pointer: TypeAlias = Any


class TlsError(OSError):
    """No TLS with this peer; the text says why."""


def _bindings() -> tuple[Bindings, Bindings]:
    from cryptography.hazmat.bindings.openssl.binding import (  # noqa: PLC0415 - for few pods
        Binding,
    )

    return Binding.lib, Binding.ffi


class Context:
    """What connections have in common: the policy, whom to believe, and who we are."""

    def __init__(
        self, policy: Policy, roots: bytes, chain: bytes | None = None, key: bytes | None = None
    ) -> None:
        """Prepare OpenSSL's context.

        Args:
            policy: what is offered.
            roots: PEM.
            chain: PEM of the client's certificates, the leaf first; none: no client certificate.
            key: PEM of the leaf's private key.

        Raises:
            ValueError: a certificate or the key cannot be used, or the policy is not known to this
                OpenSSL.
        """
        self.policy = policy
        self._lib, self._ffi = _bindings()
        lib = self._lib
        self.pointer = self._ffi.gc(lib.SSL_CTX_new(lib.TLS_client_method()), lib.SSL_CTX_free)
        lib.SSL_CTX_set_options(self.pointer, lib.SSL_OP_NO_RENEGOTIATION)
        lib.SSL_CTX_set_mode(self.pointer, lib.SSL_MODE_AUTO_RETRY | lib.SSL_MODE_RELEASE_BUFFERS)
        lib.SSL_CTX_set_verify(self.pointer, lib.SSL_VERIFY_PEER, self._ffi.NULL)
        lib.SSL_CTX_set_alpn_protos(self.pointer, ALPN, len(ALPN))
        self._limit()
        self._trust(roots)
        if chain and key:
            self._identify(certificates(chain), key)

    def _limit(self) -> None:
        lib, policy = self._lib, self.policy
        for set_version, version in (
            (lib.SSL_CTX_set_min_proto_version, policy.minimum),
            (lib.SSL_CTX_set_max_proto_version, policy.maximum),
        ):
            if set_version(self.pointer, version) != 1:
                raise ValueError(f"version 0x{version:04x} of TLS is not known to OpenSSL")
        for name, set_list, names in (
            ("cipher", lib.SSL_CTX_set_cipher_list, policy.ciphers),
            ("suite", lib.SSL_CTX_set_ciphersuites, policy.suites),
            ("group", lib.SSL_CTX_set1_curves_list, policy.groups),
        ):
            lib.ERR_clear_error()
            if set_list(self.pointer, names.encode()) != 1:
                raise ValueError(f"a {name} of {names} is not known to OpenSSL")

    def _trust(self, roots: bytes) -> None:
        """Believe each of some certificates, be it a root or not, as Go and gRPC do."""
        lib = self._lib
        store = lib.SSL_CTX_get_cert_store(self.pointer)
        lib.X509_STORE_set_flags(store, lib.X509_V_FLAG_PARTIAL_CHAIN)
        for der in certificates(roots):
            with contextlib.suppress(ValueError):  # a broken one spoils no other
                lib.X509_STORE_add_cert(store, self._certificate(der))

    def _identify(self, ders: list[bytes], key: bytes) -> None:
        lib, ffi = self._lib, self._ffi
        for number, der in enumerate(ders):
            certificate = self._certificate(der)
            if number == 0:
                if lib.SSL_CTX_use_certificate(self.pointer, certificate) != 1:
                    raise ValueError(f"the client's certificate cannot be used: {self._reason()}")
            else:  # it belongs to the context from now on
                ffi.gc(certificate, None)
                lib.SSL_CTX_add_extra_chain_cert(self.pointer, certificate)
        source = self._memory(key)
        # With a passphrase, if an empty one: without any, OpenSSL asks the terminal.
        pointer = lib.PEM_read_bio_PrivateKey(source, ffi.NULL, ffi.NULL, ffi.new("char[]", b""))
        if pointer == ffi.NULL:
            raise ValueError(f"the client's key cannot be read: {self._reason()}")
        if lib.SSL_CTX_use_PrivateKey(self.pointer, ffi.gc(pointer, lib.EVP_PKEY_free)) != 1:
            raise ValueError(f"the client's key cannot be used: {self._reason()}")
        if lib.SSL_CTX_check_private_key(self.pointer) != 1:
            raise ValueError(f"the client's key is not its certificate's: {self._reason()}")

    def _certificate(self, der: bytes) -> Pointer:
        lib, ffi = self._lib, self._ffi
        source = self._memory(certificate_pem(der))
        pointer = lib.PEM_read_bio_X509(source, ffi.NULL, ffi.NULL, ffi.NULL)
        if pointer == ffi.NULL:
            raise ValueError(f"a certificate cannot be read: {self._reason()}")
        return ffi.gc(pointer, lib.X509_free)

    def _memory(self, data: bytes) -> Pointer:
        """Return a source that has a copy: its end is that of the last reference to it."""
        lib = self._lib
        bio = self._ffi.gc(lib.BIO_new(lib.BIO_s_mem()), lib.BIO_free)
        lib.BIO_write(bio, data, len(data))
        return bio

    def _reason(self) -> str:
        return first_reason(self._lib, self._ffi)


class Session:
    """One connection; what is to be sent, and what has come, is carried by whoever uses it."""

    def __init__(self, context: Context, server_name: str) -> None:
        """Prepare a handshake with a server of this name or address."""
        self._lib, self._ffi = lib, ffi = _bindings()
        self._context = context
        self._server_name = server_name
        self._failure: TlsError | None = None
        self._buffer = ffi.new("char[]", RECORD_BYTES)
        self._ssl = ffi.gc(lib.SSL_new(context.pointer), lib.SSL_free)
        # The session frees both.
        self._received, self._unsent = (lib.BIO_new(lib.BIO_s_mem()) for _ in range(2))
        lib.SSL_set_bio(self._ssl, self._received, self._unsent)
        lib.SSL_set_connect_state(self._ssl)
        self._expect(server_name)

    def _expect(self, name: str) -> None:
        """Have the certificate's names checked; one of them must be this one.

        OpenSSL would take any certificate for no name at all, and one of any host below a name that
        begins with a dot.
        """
        lib = self._lib
        wanted = lib.SSL_get0_param(self._ssl)
        try:
            address = ipaddress.ip_address(name.strip("[]")).packed
        except ValueError:
            host = name.removesuffix(".").encode()  # DNS's root is no part, as with Go and gRPC
            lib.SSL_set_tlsext_host_name(self._ssl, host)
            flags = (
                lib.X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | lib.X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
            )
            lib.X509_VERIFY_PARAM_set_hostflags(wanted, flags)
            is_set = bool(re.fullmatch(HOST, host)) and (
                lib.X509_VERIFY_PARAM_set1_host(wanted, host, len(host))
            )
        else:
            is_set = lib.X509_VERIFY_PARAM_set1_ip(wanted, address, len(address))
        if is_set != 1:  # whom to believe would be anybody
            raise TlsError(f"{name!r} is no name of a server")

    def handshake(self) -> bool:
        """Go on with it; return whether it is done.

        Raises:
            TlsError: it has failed. What is to be sent then tells the peer.
        """
        self._lib.ERR_clear_error()
        result = self._lib.SSL_do_handshake(self._ssl)
        if result != 1:
            self._check(result)
            return False
        self._require_http2()
        return True

    def _require_http2(self) -> None:
        """Raise TlsError if the server has not agreed to HTTP/2; gRPC says so, too."""
        pointer, size = self._ffi.new("unsigned char **"), self._ffi.new("unsigned int *")
        self._lib.SSL_get0_alpn_selected(self._ssl, pointer, size)
        if size[0] == 0:  # of what was not offered OpenSSL itself takes nothing
            raise TlsError("the server does not agree to HTTP/2 by ALPN")

    def receive(self, data: bytes) -> None:
        """Take what has come."""
        self._lib.BIO_write(self._received, data, len(data))

    def read(self) -> bytes | None:
        """Return what the peer has written as far as it has come, none at its end.

        Raises:
            TlsError: the peer ends it by an alert, or what has come is no TLS.
        """
        if self._failure:
            raise self._failure
        parts = []
        while True:
            self._lib.ERR_clear_error()
            size = self._lib.SSL_read(self._ssl, self._buffer, RECORD_BYTES)
            if size <= 0:
                break
            parts.append(self._ffi.buffer(self._buffer, size)[:])
        is_open = True
        try:
            is_open = self._check(size)
        except TlsError as error:
            self._failure = error  # after what came before it, and from then on
            if not parts:
                raise
        return b"".join(parts) if parts or is_open else None

    def write(self, data: bytes) -> None:
        """Prepare some bytes for the peer.

        Raises:
            TlsError: the session has failed.
        """
        self._lib.ERR_clear_error()
        if data and (size := self._lib.SSL_write(self._ssl, data, len(data))) <= 0:
            self._check(size)
            raise TlsError("the session has ended")

    def close(self) -> None:
        """Prepare to tell the peer that nothing follows."""
        self._lib.ERR_clear_error()
        self._lib.SSL_shutdown(self._ssl)

    def take(self) -> bytes:
        """Return what is to be sent."""
        pointer = self._ffi.new("char **")
        size = self._lib.BIO_get_mem_data(self._unsent, pointer)
        data = bytearray(size)
        if size:
            self._lib.BIO_read(self._unsent, self._ffi.from_buffer(data), size)
        return bytes(data)

    def _check(self, result: int) -> bool:
        """Return whether more may come; raise what has failed."""
        lib = self._lib
        code = lib.SSL_get_error(self._ssl, result)
        if code in (lib.SSL_ERROR_WANT_READ, lib.SSL_ERROR_WANT_WRITE):
            return True
        if code == lib.SSL_ERROR_ZERO_RETURN:
            return False
        raise TlsError(self._explain())

    def _explain(self) -> str:
        lib, ffi = self._lib, self._ffi
        reason = first_reason(lib, ffi)
        verified = lib.SSL_get_verify_result(self._ssl)
        if verified == 0:
            return f"TLS: {reason}; offered was {self._context.policy}"
        if verified in NAME_ERRORS:
            return f"Peer name {self._server_name} is not in peer certificate"
        text = ffi.string(lib.X509_verify_cert_error_string(verified)).decode()
        return f"CERTIFICATE_VERIFY_FAILED: {text}"


def first_reason(lib: Bindings, ffi: Bindings) -> str:
    """Return the first error that OpenSSL has noted."""
    text = lib.ERR_reason_error_string(lib.ERR_get_error())
    return ffi.string(text).decode() if text != ffi.NULL else "protocol error"
