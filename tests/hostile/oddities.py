"""Odd queries, headers, paths and methods, and requests that are no HTTP; each by a name."""

from collections.abc import Mapping
from typing import Final

Headers = tuple[tuple[bytes, bytes], ...]

METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "PRI", "lower", "A" * 100)

QUERIES: Final[Mapping[str, bytes]] = {
    **{text.decode("latin-1"): text for text in (
        b"", b"limit=0", b"limit=-1", b"limit=1e9", b"limit=10000", b"limit=10001", b"limit=NaN", b"limit=", b"limit=1&limit=2",
        b"continue=x", b"continue=%00", b"continue=W10", b"continue=eyJhIjoxfQ", b"continue=bnVsbA", b"continue=W1tbXV1d",
        b"format=json", b"format=xml", b"kind=Pod", b"kind=%ff", b"state=allocated&free=true", b"free=maybe", b"node=%1b[31m",
        b"node=%ED%A0%80", b"pool=%", b"driver=%zz", b"unknown=1", b"limit=1;2", b"&&&&", b"=", b"verbose", b"verb=bind", b"limit=%D9%A3",
        b"pod=\xff\xfe", b"namespace=%0d%0aX:1", b"limit=0x10", b"limit=1_0", b"continue=-1", b"node=a&node=b",
    )},
    "continue, 60,000 bytes": b"continue=" + b"A" * 60_000,
    "continue, deep JSON": b"continue=" + b"W1tb" * 10_000,
    "5,000 digits": b"limit=" + b"9" * 5000,
    "20,000 parameters": b"&".join([b"node=a"] * 10_000),
    "10,000 unknown parameters": b"&".join(b"p%d=" % i for i in range(5000)),
    "percent signs": b"node=" + b"%25" * 20_000,
}  # fmt: skip

HEADERS: Final[Mapping[str, Headers]] = {
    "10,000 headers": tuple((b"x-%d" % i, b"y") for i in range(10_000)),
    "one header 10,000 times": ((b"x", b"y"),) * 10_000,
    "a header of 1 MB": ((b"x", b"y" * 1_000_000),),
    "a header of 60 kB": ((b"x", b"y" * 60_000),),
    "a name of 60 kB": ((b"x" * 60_000, b"y"),),
    "Accept, 10,000 ranges": ((b"accept", b"a/b;q=0.1," * 10_000),),
    "Accept, odd weights": ((b"accept", b"text/plain;q=NaN,application/json;q=1e999,*/*;q=-1,;;;=,q=,text/*;q=\xff"),),
    "Accept, nothing that there is": ((b"accept", b"image/png;q=1, text/plain;q=0, application/json;q=0"),),
    "Accept, 60 kB of semicolons": ((b"accept", b";" * 60_000),),
    "Accept-Encoding, odd": ((b"accept-encoding", b"gzip;q=NaN, br, *;q=0"),),
    "Content-Encoding: gzip": ((b"content-encoding", b"gzip"),),
    "Expect": ((b"expect", b"100-continue"),),
    "Expect, odd": ((b"expect", b"200-ok"),),
    "session, odd": ((b"session", b"\xff\xfe\x80"),),
    "session, 60 kB": ((b"session", b"s" * 60_000),),
    "session twice": ((b"session", b"a"), (b"session", b"b")),
    "session, empty": ((b"session", b""),),
    "traceparent, odd": ((b"traceparent", b"00-" + b"g" * 1000), (b"tracestate", b"=" * 1000)),
    "traceparent, zeros": ((b"traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),),
    "Upgrade": ((b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-key", b"x")),
    "Upgrade to h2c": ((b"connection", b"upgrade, http2-settings"), (b"upgrade", b"h2c"), (b"http2-settings", b"AAMAAABk")),
    "Host twice": ((b"host", b"a"), (b"host", b"b")),
    "Host, odd": ((b"host", b"[::1]:99999@x/\xff"),),
    "Forwarded": ((b"x-forwarded-for", b"," * 10_000), (b"x-forwarded-proto", b"gopher")),
    "Range": ((b"range", b"bytes=" + b"0-," * 10_000),),
    "Cookie, 60 kB": ((b"cookie", b"a=b;" * 15_000),),
    "Content-Type, 60 kB": ((b"content-type", b"application/json;" * 3500),),
    "Content-Type, odd": ((b"content-type", b"multipart/form-data"),),
    "Connection: close": ((b"connection", b"close"),),
}

PATHS: Final[Mapping[str, bytes]] = {
    **{text.decode("latin-1"): text for text in (
        b"*", b"//", b"/../../etc/passwd", b"/%2e%2e/", b"/%00", b"/%ff%fe", b"/explain", b"/explain/", b"/explain//", b"/explain/a/b/c",
        b"/explain/%00/%1b%5b31m", b"/explain/hostile/%ED%A0%80", b"/explain/%2F/%2F", b"/filter/", b"/FILTER", b"/filter?x=1", b"/filter#x",
        b"/autoscaler", b"/autoscaler/", b"/autoscaler/start?x", b"http://other/filter", b"http://[/", b"/filter;a=b", b"/\xff\xfe",
        b"/explain/hostile/p?node=", b"/explain/hostile/of-selector-1?node=x&x=y", b"/metrics/..", b"/docs", b"/redoc", b"/.git/config",
    )},
    "explain, 60 kB": b"/explain/hostile/" + b"p" * 60_000,
    "explain, 60 kB of percent signs": b"/explain/hostile/" + b"%25" * 20_000,
    "explain, 5,000 nodes": b"/explain/hostile/of-selector-1?" + b"&".join([b"node=n"] * 5000),
    "60 kB of slashes": b"/" * 60_000,
    "1 MB": b"/" + b"a" * 1_000_000,
}  # fmt: skip

_HEAD: Final = b"POST /filter HTTP/1.1\r\nhost: x\r\n"

BROKEN: Final[Mapping[str, bytes]] = {
    "nothing but line ends": b"\r\n" * 1000,
    "zero bytes": b"\x00" * 1000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "HTTP/0.9": b"GET /\r\n",
    "HTTP/9.9": b"GET / HTTP/9.9\r\n\r\n",
    "HTTP/1.0": b"GET /livez HTTP/1.0\r\n\r\n",
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "no version": b"GET /livez\r\n\r\n",
    "a line without end": b"GET /" + b"a" * 1_000_000,
    "headers without end": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000,
    "header without colon": b"GET / HTTP/1.1\r\nnonsense\r\n\r\n",
    "header with zero byte": b"GET / HTTP/1.1\r\nx: a\x00b\r\n\r\n",
    "header folded": b"GET / HTTP/1.1\r\nx: a\r\n b\r\n\r\n",
    "header name with blank": b"GET / HTTP/1.1\r\nx y: a\r\n\r\n",
    "line feeds alone": b"GET /livez HTTP/1.1\nhost: x\n\n",
    "content-length twice": _HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}{}",
    "content-length negative": _HEAD + b"content-length: -1\r\n\r\n{}",
    "content-length no number": _HEAD + b"content-length: x\r\n\r\n{}",
    "content-length huge": _HEAD + b"content-length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "content-length 10**18": _HEAD + b"content-length: 1000000000000000000\r\n\r\n{}",
    "content-length more than sent": _HEAD + b"content-length: 100\r\n\r\n{}",
    "content-length less than sent": _HEAD + b"content-length: 2\r\n\r\n{}" + b"{}" * 1000,
    "content-length and chunks": _HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks": _HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "100,000 chunks": _HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 100_000 + b"0\r\n\r\n",
    "chunk of negative size": _HEAD + b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "chunk of huge size": _HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"F" * 100 + b"\r\n{}\r\n0\r\n\r\n",
    "chunk extension of 1 MB": _HEAD + b"transfer-encoding: chunked\r\n\r\n2;" + b"x" * 1_000_000 + b"\r\n{}\r\n0\r\n\r\n",
    "chunk cut": _HEAD + b"transfer-encoding: chunked\r\n\r\nff\r\n{}",
    "trailers": _HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
    "transfer-encoding odd": _HEAD + b"transfer-encoding: gzip, chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "300 requests in one": b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 300,
    "100 requests in one, bodies deep": (_HEAD + b"content-length: 2000\r\n\r\n" + b"[" * 1000 + b"]" * 1000) * 100,
    "a request, and half of another": b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nPOST /fil",
    "10 MB of noise": bytes(range(1, 256)) * 40_000,
}  # fmt: skip
