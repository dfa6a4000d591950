"""The servers that the suites here talk to, one of a kind for the whole run.

`server` stands for both kinds: the fake engine (exact about time and failures, window 256) and the
real one on a chain model (exact about text). TENON_HTTP_KINDS=fake leaves the real one out.
"""

import os

import chain
import pytest
import server as servers

EMOJI = "👩🏽‍🚀 漢 é".encode()

WORDS = [f"{a}{b}" for a in "qrst" for b in ("fox", "gull", "hare", "ibex")]

CHAINS = {
    "check": ["All", " is", " well", "."],
    # Inside characters the pieces end in the middle of a byte sequence.
    "emoji": [
        EMOJI[0:2],
        EMOJI[2:5],
        EMOJI[5:7],
        EMOJI[7:9],
        EMOJI[9:10],
        EMOJI[10:14],
        EMOJI[14:17],
        EMOJI[17:18],
        EMOJI[18:20],
        EMOJI[20:21],
        EMOJI[21:],
    ],
    "alphabet": ["A", "BC", "DEF", "GH", "IJK", "L", "MNOP", "QRS", "TU", "VWXYZ"],
    "quote": [' {"a"', ': "x\\', 'n"', ", ", '"b":', " [1, 2]", "}"],
    # Each client's own code word, said more often the further down the list it is.
    **{f"word-{w}": [f" {w}-{i}" for i in range(2 + n // 3)] for n, w in enumerate(WORDS)},
}
LOOP = [" round", " and", " around", ","]
servers.SAYS.update(
    {name: b"".join(chain.as_bytes(p) for p in pieces) for name, pieces in CHAINS.items()}
)

KEY = "s3cret-key"
ORIGIN = "http://ui.example"
KINDS = [k for k in ("fake", "real") if k in os.environ.get("TENON_HTTP_KINDS", "fake,real")]


def pytest_configure(config):
    config.addinivalue_line("markers", "slow_model: runs the default model, a few tokens a second")


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def chain_model(tmp_path_factory):
    return chain.make_chain_model(
        tmp_path_factory.mktemp("models") / "chain",
        more={**CHAINS, "loop": LOOP},
        endless={"loop"},
        dice=True,
        context=8192,
    )


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    return chain.make_random_model(tmp_path_factory.mktemp("models") / "random")


def running(start):
    """A fixture body: starts, yields, stops."""
    server = start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def fake(logs):
    yield from running(lambda: servers.start_fake(logs / "fake.log"))


@pytest.fixture(scope="session")
def slow_fake(logs):
    """20 ms a token, 50 ms for 32 prompt tokens, a queue of 4, one second of patience with slow
    clients.
    """
    yield from running(
        lambda: servers.start_fake(
            logs / "slow_fake.log", token_ms=20, prefill_ms=50, queue=4, idle_s=1, comment_s=1
        )
    )


@pytest.fixture(scope="session")
def real(logs, chain_model):
    if "real" not in KINDS:
        pytest.skip("TENON_HTTP_KINDS leaves the real server out")
    yield from running(
        lambda: servers.start_real(logs / "real.log", chain_model.folder, chains=chain_model)
    )


@pytest.fixture(params=KINDS)
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def narrow_real(logs, chain_model):
    yield from running(
        lambda: servers.start_real(
            logs / "narrow.log", chain_model.folder, "--context", "256", chains=chain_model
        )
    )


@pytest.fixture(params=KINDS)
def narrow(request):
    """A window of 256 tokens; the fake engine has it always."""
    return request.getfixturevalue({"fake": "fake", "real": "narrow_real"}[request.param])


@pytest.fixture(scope="session")
def keyed_fake(logs):
    yield from running(lambda: servers.start_fake(logs / "keyed_fake.log", key=KEY, cors=ORIGIN))


@pytest.fixture(scope="session")
def keyed_real(logs, chain_model, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"# who may call\nother:not-this-one\nui:{KEY}\n")
    keys.chmod(0o600)
    yield from running(
        lambda: servers.start_real(
            logs / "keyed_real.log",
            chain_model.folder,
            "--api-key-file",
            keys,
            "--cors-origin",
            ORIGIN,
            chains=chain_model,
            key=KEY,
        )
    )


@pytest.fixture(params=KINDS)
def keyed(request):
    """A server that wants a key and answers one origin."""
    return request.getfixturevalue(f"keyed_{request.param}")
