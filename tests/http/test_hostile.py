"""Requests made to cost more than they are worth: each is refused with its reason, or over soon, and
the server answers the next one.
"""

import json
import socket
import time

import pytest
import server as servers


def refused(server, fields, names, path="/v1/completions"):
    reply = server.post(path, fields)
    assert reply.status == 400, reply
    assert names in json.dumps(reply.error()), reply
    server.check()


def test_more_rows_than_are_made_at_once(server):
    refused(server, {"prompt": ["a"] * 64, "n": 16}, "at most 64")


def test_a_body_of_very_many_values(server):
    messages = [{"role": "user", "content": ""}] * 400_000
    refused(server, {"messages": messages}, "values", "/v1/chat/completions")


def test_penalties_too_small_for_a_logit(server):
    for value in (0, 1e-40, 1e-320):
        refused(server, {"prompt": "a", "repetition_penalty": value}, "repetition_penalty")


def test_one_id_spelled_twice_in_logit_bias(server):
    refused(server, {"prompt": "a", "logit_bias": {"65": 60, "065": 60}}, "065")


def test_leaving_behind_a_wall_of_pipelined_bytes(server):
    """The row is given back although nobody can see the end of what was sent."""
    server.wait_idle()
    body = json.dumps({"prompt": "a", "max_tokens": 200, "ignore_eos": True, "n": 16}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", server.port), 20) as client:
        client.sendall(head + body)
        try:
            client.sendall(b"G" * 200_000)
            time.sleep(0.05)
        except OSError:
            pass  # cut off: that is an answer too
    server.wait_idle()
    server.check()


@pytest.mark.parametrize("kib", [40_000])
def test_many_large_bodies_at_once_are_bounded(server, kib):
    """Eight clients that hold back the end of 60 MB each: past 256 MiB a body is refused."""
    clients, statuses = [], []
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 62914560\r\n\r\n"
    )
    piece = b" " * (1 << 20)
    try:
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", server.port), 30)
            clients.append(client)
            client.settimeout(30)
            try:
                client.sendall(head)
                for _ in range(kib >> 10):
                    client.sendall(piece)
            except OSError:
                pass
        for client in clients:
            client.settimeout(1)
            try:
                statuses.append(client.recv(64).split(b" ")[1])
            except (OSError, IndexError):
                statuses.append(b"")
    finally:
        for client in clients:
            client.close()
    assert b"503" in statuses, statuses
    server.check()
