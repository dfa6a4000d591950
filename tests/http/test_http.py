"""HTTP itself over raw sockets (B36): framing, limits, pipelining, slow senders, connections kept.

Against both servers; what a client must not be able to do is hold one up or confuse it.
"""

import socket
import time

import pytest
import server as servers
from server import chat_body

CHAT = "/v1/chat/completions"


def test_header_limits(server):
    for payload in (
        servers.head("GET", "/health", "x-big: " + "x" * 20_000),
        servers.head("GET", "/health", *[f"x-{i}: {'y' * 90}" for i in range(300)]),
        servers.head("GET", "/" + "x" * 20_000),
    ):
        reply = servers.exchange(server, payload)[0]
        assert reply.status == 431, reply
        reply.error()
    server.check()


MALFORMED = [
    ("not HTTP", b"hello there\r\n\r\n"),
    ("TLS hello", bytes.fromhex("160301020001000001fc0303") + b"\0" * 64),
    ("no version", b"GET /health\r\n\r\n"),
    ("no host, bad header", b"GET /health HTTP/1.1\r\nno colon here\r\n\r\n"),
    ("space before colon", b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n"),
    ("two lengths", servers.head("POST", CHAT, "content-length: 2", "content-length: 3") + b"{} "),
    ("negative length", servers.head("POST", CHAT, "content-length: -1") + b"{}"),
    ("length in words", servers.head("POST", CHAT, "content-length: two") + b"{}"),
    ("huge length", servers.head("POST", CHAT, "content-length: 99999999999999999999999") + b"{}"),
    (
        "length and chunked",
        servers.head("POST", CHAT, "content-length: 2", "transfer-encoding: chunked")
        + b"2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "bad chunk size",
        servers.head("POST", CHAT, "content-type: application/json", "transfer-encoding: chunked")
        + b"zz\r\n{}\r\n0\r\n\r\n",
    ),
    ("other coding", servers.head("POST", CHAT, "transfer-encoding: gzip") + b"{}"),
    ("bad escape", servers.head("GET", "/v1/models/%zz")),
    ("control byte", servers.head("GET", "/v1/models/a%00b")),
    ("newline escaped", servers.head("GET", "/v1/models/a%0d%0ax")),
    ("no path", servers.head("GET", "health")),
]


@pytest.mark.parametrize("name, payload", MALFORMED, ids=[m[0] for m in MALFORMED])
def test_malformed_http(server, name, payload):
    replies = servers.exchange(server, payload, replies=2)
    assert len(replies) == 1, f"{name}: {len(replies)} answers: {replies}"
    assert replies[0].status in (400, 413), f"{name}: {replies[0]}"
    replies[0].error()
    server.check()


def test_chunked_bodies(server):
    body = chat_body()
    for size in (1, 7, len(body)):
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
        payload = servers.head(
            "POST", CHAT, "content-type: application/json", "transfer-encoding: chunked"
        )
        reply = servers.exchange(server, payload + chunks)[0]
        assert reply.status == 200, f"chunks of {size}: {reply}"


def test_pipelined_requests_are_answered_in_order(server):
    body = chat_body()
    payload = (
        servers.head("GET", "/health")
        + servers.head(
            "POST", CHAT, "content-type: application/json", f"content-length: {len(body)}"
        )
        + body
        + servers.head("GET", "/nope")
        + servers.head("GET", "/v1/models")
    )
    replies = servers.exchange(server, payload, replies=4)
    assert [r.status for r in replies] == [200, 200, 404, 200], replies
    assert "choices" in replies[1].json() and replies[3].json()["object"] == "list"


def test_a_connection_is_kept(server):
    with server.connect() as connection, connection.makefile("rb") as stream:
        for _ in range(3):
            connection.sendall(servers.head("GET", "/health"))
            assert servers.read_reply(stream).status == 200
        body = chat_body(stream=True)
        connection.sendall(
            servers.head(
                "POST", CHAT, "content-type: application/json", f"content-length: {len(body)}"
            )
            + body
        )
        assert servers.read_reply(stream).events(), "a stream, and the connection goes on after it"
        connection.sendall(servers.head("GET", "/health", "connection: close"))
        assert servers.read_reply(stream).status == 200
        assert stream.read() == b"", "closed as asked"


def test_http_1_0(server):
    body = chat_body(stream=True)
    payload = (
        f"POST {CHAT} HTTP/1.0\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    reply = servers.exchange(server, payload)[0]
    assert reply.status == 200 and "transfer-encoding" not in reply.headers, reply
    assert reply.events(), "ends with the connection"


def test_head_has_no_body(server):
    with server.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(
            servers.head("HEAD", "/health") + servers.head("GET", "/health", "connection: close")
        )
        assert servers.read_reply(stream, no_body=True).status == 200
        assert servers.read_reply(stream).json() == {"status": "ok"}


def test_expect_continue(server):
    body = chat_body()
    with server.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(
            servers.head(
                "POST",
                CHAT,
                "content-type: application/json",
                "expect: 100-continue",
                f"content-length: {len(body)}",
            )
        )
        assert servers.read_reply(stream).status == 100
        connection.sendall(body)
        assert servers.read_reply(stream).status == 200


def test_a_request_byte_by_byte(server):
    body = chat_body()
    payload = (
        servers.head("POST", CHAT, "content-type: application/json", f"content-length: {len(body)}")
        + body
    )
    with server.connect() as connection, connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(payload)):
            connection.sendall(payload[i : i + 1])
        assert servers.read_reply(stream).status == 200


@pytest.mark.parametrize(
    "name, part",
    [
        ("header", b"GET /health HTTP/1.1\r\nhost: x\r\nx-slow:"),
        (
            "body",
            servers.head("POST", CHAT, "content-type: application/json", "content-length: 100")
            + b'{"a',
        ),
    ],
    ids=["header", "body"],
)
def test_slow_senders_are_let_go(slow_fake, name, part):
    """A second of patience there; others are served meanwhile."""
    with slow_fake.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(part)
        assert slow_fake.request("GET", "/health").status == 200
        start = time.monotonic()
        reply = servers.read_reply(stream)
        assert reply and reply.status == 408, reply
        assert time.monotonic() - start < 5 * servers.PATIENCE
        reply.error()


def test_many_idle_connections_starve_nobody(server):
    idle = [server.connect() for _ in range(200)]
    try:
        for connection in idle[::2]:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost:")
        server.check()
    finally:
        for connection in idle:
            connection.close()
    server.check()
