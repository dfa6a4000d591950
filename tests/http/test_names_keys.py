"""Model names that reach nowhere (B37), API keys and CORS (B38), against both servers."""

import json
import re

import pytest
import server as servers
from conftest import KEY, ORIGIN

CHAT = "/v1/chat/completions"
# An absolute path of a file system, not a route that an answer may name.
MACHINE_PATH = re.compile(r"/(?:home|root|tmp|usr|var|work|etc/[a-z]+/|opt|mnt)/?")


# --- B37

NAMES = [
    "no-such-model-xyz",
    "",
    "../../etc",
    "..",
    ".",
    "/",
    "/etc/hostname",
    "a\0b",
    "%2e%2e",
    "a/b",
    "org/repo@rev",
    "x" * 10_000,
    "модель",
    "~",
    "$HOME",
    "C:\\x",
    " ",
    "\n",
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES, ids=[ascii(n)[:20] for n in NAMES])
def test_an_unknown_model_is_not_found(server, name, stream):
    for path, body in (
        (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
    ):
        reply = server.post(path, body | {"model": name, "stream": stream})
        assert reply.status == 404, reply
        error = reply.error()
        assert error["code"] == "model_not_found" and error["param"] == "model", error
        assert len(error["message"]) < 1000, "a name is quoted, but not at any length"
        if not MACHINE_PATH.search(name):
            assert not MACHINE_PATH.search(error["message"]), error
    server.check()


def test_a_model_that_is_not_a_name(server):
    for value in (5, True, [], {}, ["fake"]):
        reply = server.chat("x", model=value, max_tokens=1)
        assert reply.status == 400 and reply.error()["param"] == "model", reply


def test_no_model_means_the_default_and_its_true_name_comes_back(server):
    for fields in ({}, {"model": None}, {"model": server.model}):
        reply = server.chat(server.say("check"), temperature=0, **fields)
        assert reply.json()["model"] == server.model, reply


@pytest.mark.parametrize(
    "path",
    [
        "no-such",
        "..",
        "%2e%2e",
        "%2e%2e%2fetc",
        "..%2f..%2fetc%2fpasswd",
        "a/b/c",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "x" * 5000,
    ],
)
def test_models_by_id(server, path):
    reply = server.request("GET", f"/v1/models/{path}")
    assert reply.status == 404, reply
    assert reply.error()["code"] in ("model_not_found", "route_not_found"), reply
    server.check()


def test_other_routes_know_no_other_model(server):
    for path, body in (("/tokenize", {"content": "x"}), ("/detokenize", {"tokens": [65]})):
        assert server.post(path, body).status == 200
        reply = server.post(path, body | {"model": "../x"})
        assert reply.status == 404 and reply.error()["code"] == "model_not_found", reply


def test_answers_name_no_path_of_the_machine(real):
    bodies = [
        real.request("GET", p).body for p in ("/v1/models", "/stats", "/health", "/ready", "/nope")
    ]
    bodies += [
        real.chat("x", model=str(real.chains.folder)).body.replace(
            str(real.chains.folder)[:64].encode(), b""
        )
    ]  # what the client itself sent may come back
    for body in bodies:
        assert not MACHINE_PATH.search(body.decode()), body


# --- B38


def named(*pairs):
    return [f"{name}: {value}" for name, value in pairs]


WRONG = {
    "none": [],
    "wrong": named(("authorization", "Bearer nope")),
    "prefix": named(("authorization", f"Bearer {KEY[:-1]}")),
    "longer": named(("authorization", f"Bearer {KEY}x")),
    "other case": named(("authorization", f"Bearer {KEY.upper()}")),
    "two blanks": named(("authorization", f"Bearer  {KEY}")),
    "blank within": named(("authorization", f"Bearer {KEY} x")),
    "not ASCII": named(("authorization", "Bearer kéy")),
    "not ASCII, right ahead": named(("authorization", f"Bearer {KEY}é")),
    "empty": named(("authorization", "")),
    "no key": named(("authorization", "Bearer")),
    "no scheme": named(("authorization", KEY)),
    "basic": named(("authorization", f"Basic {KEY}")),
    "two headers": named(("authorization", f"Bearer {KEY}"), ("authorization", "Bearer nope")),
    "two right headers": named(
        ("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")
    ),
    "x-api-key wrong": named(("x-api-key", "nope")),
    "x-api-key empty": named(("x-api-key", "")),
    "right and wrong": named(("authorization", f"Bearer {KEY}"), ("x-api-key", "nope")),
    "its name": named(("authorization", "Bearer ui")),
    "very long": named(("authorization", "Bearer " + "k" * 8000)),
}
RIGHT = {
    "bearer": named(("authorization", f"Bearer {KEY}")),
    "lower case": named(("authorization", f"bearer {KEY}")),
    "x-api-key": named(("x-api-key", KEY)),
    "both": named(("authorization", f"Bearer {KEY}"), ("x-api-key", KEY)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_keys(keyed, name):
    body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1}'
    for payload in (
        servers.head("GET", "/v1/models", *WRONG[name]),
        servers.head(
            "POST",
            CHAT,
            *WRONG[name],
            "content-type: application/json",
            f"content-length: {len(body)}",
        )
        + body,
    ):
        reply = servers.exchange(keyed, payload)[0]
        assert reply.status == 401, f"{name}: {reply}"
        assert reply.error()["code"] == "invalid_api_key"
        assert "www-authenticate" in reply.headers
        assert KEY not in reply.body.decode()
    keyed.check()


@pytest.mark.parametrize("name", RIGHT)
def test_right_keys(keyed, name):
    reply = servers.exchange(keyed, servers.head("GET", "/v1/models", *RIGHT[name]))[0]
    assert reply.status == 200, reply


def test_every_key_of_the_file_opens(request, keyed_real):
    reply = servers.exchange(
        keyed_real, servers.head("GET", "/v1/models", "x-api-key: not-this-one")
    )[0]
    assert reply.status == 200, reply


OPEN = ["/health", "/ready"]
CLOSED = [
    "/",
    "/v1/models",
    "/v1/models/x",
    "/stats",
    "/metrics",
    "/nope",
    "/admin/x",
    "/v1/models/../health",
    "/tokenize",
]


def test_only_the_documented_routes_are_open(keyed):
    for path in OPEN:
        assert servers.exchange(keyed, servers.head("GET", path))[0].status == 200, path
    for path in CLOSED:
        assert servers.exchange(keyed, servers.head("GET", path))[0].status == 401, path
    for path in (CHAT, "/v1/completions", "/tokenize", "/detokenize", "/health"):
        reply = servers.exchange(keyed, servers.head("POST", path, "content-length: 0"))[0]
        assert reply.status in (401, 405), f"{path}: {reply}"


def test_a_refused_body_is_not_read_in(keyed):
    """Without a key nobody makes the server hold 60 MB."""
    payload = servers.head(
        "POST", CHAT, "content-type: application/json", "content-length: 60000000"
    )
    assert servers.exchange(keyed, payload)[0].status == 401


def test_the_client_library_with_and_without_a_key(keyed):
    import openai

    assert keyed.client().models.list().data
    with pytest.raises(openai.AuthenticationError):
        keyed.client(api_key="nope").models.list()


# --- CORS


def preflight(
    server, path=CHAT, origin=ORIGIN, asked="authorization, content-type, x-stainless-os"
):
    return servers.exchange(
        server,
        servers.head(
            "OPTIONS",
            path,
            f"origin: {origin}",
            "access-control-request-method: POST",
            f"access-control-request-headers: {asked}",
        ),
    )[0]


def test_preflight_needs_no_key(keyed):
    for path in (CHAT, "/v1/models", "/nope"):
        reply = preflight(keyed, path)
        assert reply.status in (200, 204), reply
        allowed = {
            h.strip() for h in reply.headers["access-control-allow-headers"].lower().split(",")
        }
        assert {"authorization", "x-api-key", "content-type", "x-stainless-os"} <= allowed, allowed
        assert reply.headers["access-control-allow-origin"] == ORIGIN
        assert "POST" in reply.headers["access-control-allow-methods"]


def test_answers_carry_the_origin(keyed):
    for reply in (
        keyed.request("GET", "/v1/models"),
        keyed.request("GET", "/nope"),
        keyed.chat("x", temperature=9),
        keyed.chat(keyed.say("check"), stream=True),
        servers.exchange(keyed, servers.head("GET", "/v1/models"))[0],
    ):
        assert reply.headers["access-control-allow-origin"] == ORIGIN, reply
        assert "origin" in reply.headers["vary"].lower(), reply
        assert "access-control-allow-credentials" not in reply.headers


def test_a_preflight_is_no_way_to_smuggle_headers(keyed):
    reply = preflight(keyed, asked="x-a\tb")
    assert reply.status in (200, 204, 400), reply
    keyed.check()


def test_without_the_flag_no_origin_is_let_in(server):
    reply = preflight(server)
    assert "access-control-allow-origin" not in reply.headers, reply
    assert (
        "access-control-allow-origin"
        not in server.request("GET", "/v1/models", headers={"origin": ORIGIN}).headers
    )


def test_a_star_goes_without_credentials(logs):
    server = servers.start_fake(logs / "star.log", cors="*")
    try:
        for reply in (
            preflight(server),
            server.request("GET", "/v1/models", headers={"origin": ORIGIN}),
        ):
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in reply.headers
    finally:
        server.stop()


# --- key files

BAD_KEY_FILES = [
    ("empty", ""),
    ("comments alone", "# nothing\n\n"),
    ("no secret", "name:\n"),
    ("blank", "a b\n"),
    ("not ASCII", "kéy\n"),
    ("name twice", "a:1\na:2\n"),
]


@pytest.mark.parametrize("name, text", BAD_KEY_FILES, ids=[b[0] for b in BAD_KEY_FILES])
def test_a_bad_key_file_does_not_open_the_server(chain_model, tmp_path, name, text):
    file = tmp_path / "keys"
    file.write_text(text)
    code, _, err = servers.run_tenon(
        "serve", "--model", chain_model.folder, "--port", "0", "--api-key-file", file, timeout=30
    )
    assert code in (1, 2) and "--api-key-file" in err, (code, err)
    for secret in ("kéy", "a b"):
        assert secret not in err, "a secret was printed"


def test_error_bodies_are_json_in_every_case(keyed):
    for payload in (
        servers.head("GET", "/nope"),
        servers.head("BREW", "/v1/models"),
        b"junk\r\n\r\n",
    ):
        reply = servers.exchange(keyed, payload)[0]
        assert reply.headers["content-type"] == "application/json", reply
        json.loads(reply.body)
