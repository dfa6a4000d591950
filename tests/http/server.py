"""Starts and stops the programs under test, and speaks raw HTTP to them.

Both print one line that ends in 127.0.0.1:PORT: build/release/tenon serve (TENON_BIN), and
fake_server, the same api and server rooms over an engine without a model (TENON_BUILD_DIR). Every
wait is bounded.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import openai

REPO = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TENON_BUILD_DIR", REPO / "build/release"))
TENON = Path(os.environ.get("TENON_BIN", BUILD / "tenon"))
DEFAULT_MODEL = REPO / "share/models/smollm2-135m-instruct-q4_1.gguf"
# Sanitizers slow a program down several times over.
PATIENCE = 6 if os.environ.get("TENON_PRESET", "release") in ("asan", "ubsan", "tsan") else 1
START_S = 60 * PATIENCE
REPLY_S = 60 * PATIENCE


def fake_server_path():
    for place in ("fake_server", "tests/fake_server", "tests/http/fake_server"):
        if (BUILD / place).is_file():
            return BUILD / place
    return BUILD / "fake_server"


def wait_until(what, condition, seconds):
    """Polls; returns how long it took."""
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        assert waited < seconds * PATIENCE, f"{what}: still not so after {waited:.1f} s"
        time.sleep(0.01)
    return time.monotonic() - start


class Reply:
    """An HTTP answer: status, headers (lower case), body."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body.decode("utf-8"))

    def error(self):
        """The error object, after checking its shape."""
        value = self.json()
        assert set(value) == {"error"}, f"not an error object alone: {value}"
        error = value["error"]
        assert {"message", "type", "param", "code"} <= set(error), f"fields are missing: {error}"
        assert error["message"] and isinstance(error["message"], str), f"no message: {error}"
        return error

    def events(self):
        """Data of a stream, [DONE] checked and taken off."""
        assert self.headers.get("content-type", "").startswith("text/event-stream"), self
        blocks = [b for b in self.body.decode("utf-8").split("\n\n") if b and not b.startswith(":")]
        assert all(b.startswith("data: ") for b in blocks), f"not SSE data: {blocks}"
        assert blocks[-1] == "data: [DONE]", f"ends with {blocks[-1]!r}"
        return [json.loads(b[len("data: ") :]) for b in blocks[:-1]]

    def __repr__(self):
        return f"HTTP {self.status} {self.headers} {self.body[:600]!r}"


class Server:
    """One running program. Names of chains (chain.py) are what the real one can be made to say."""

    def __init__(self, kind, command, log, env=None, chains=None, key=None):
        self.kind, self.chains, self.key, self.log = kind, chains, key, Path(log)
        self.terminated = False
        assert Path(command[0]).is_file(), f"{command[0]} is not built (make test builds it)"
        with open(self.log, "wb") as errors:
            self.process = subprocess.Popen(
                [str(c) for c in command],
                stdin=subprocess.DEVNULL,
                bufsize=0,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | (env or {}),
            )
        try:
            self.port = self._read_port()
            self.url = f"http://127.0.0.1:{self.port}"
            self.model = self.stats()["models"][0]["id"]
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read_port(self):
        lines = []
        reader = threading.Thread(
            target=lambda: lines.append(self.process.stdout.readline()), daemon=True
        )
        reader.start()
        reader.join(START_S)
        line = lines[0].decode() if lines else ""
        found = re.search(r"127\.0\.0\.1:(\d+)\s*$", line)
        assert found, f"{self.kind}: no port in its first line {line!r}; stderr: {self.stderr()}"
        return int(found[1])

    def stderr(self):
        return self.log.read_text(errors="replace")[-4000:]

    def terminate(self):
        """SIGTERM, once: a second one would cut replies short."""
        if not self.terminated and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.terminated = True

    def stop(self):
        """Ends it as an operator would; it must go by itself, with exit code 0 and no sanitizer
        report.
        """
        self.terminate()
        try:
            code = self.process.wait(20 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"{self.kind}: SIGTERM did not end it; stderr: {self.stderr()}"
            ) from None
        finally:
            self.process.stdout.close()
        assert code == 0, f"{self.kind}: exit code {code} after SIGTERM; stderr: {self.stderr()}"
        assert "Sanitizer" not in self.stderr(), self.stderr()

    # --- talking to it

    def client(self, **options):
        options = (
            dict(
                base_url=f"{self.url}/v1",
                api_key=self.key or "none",
                max_retries=0,
                timeout=REPLY_S,
            )
            | options
        )
        return openai.OpenAI(**options)

    def auth(self):
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def request(self, method, path, body=None, headers=None, timeout=REPLY_S):
        """One request on a connection of its own. A dict body goes out as JSON."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        headers = {
            **self.auth(),
            **({"content-type": "application/json"} if body is not None else {}),
            **(headers or {}),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Reply(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def chat(self, content, **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", {"messages": messages, **fields})

    def completion(self, prompt, **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def stats(self):
        reply = self.request("GET", "/stats")
        assert reply.status == 200, reply
        return reply.json()

    def wait_idle(self, seconds=5):
        def idle():
            now = self.stats()
            return now["running"] == 0 and now["waiting"] == 0

        return wait_until(f"{self.kind}: no request running or waiting", idle, seconds)

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout * PATIENCE)

    # --- what it is made to say

    def say(self, name):
        """A chat message that is answered with chain `name`, on either kind."""
        return f"[[chain {name}]] [[say {self.text(name)}]]"

    def prompt(self, name):
        """The same for /v1/completions."""
        return f"[[say {self.text(name)}]]<|go:{name}|>"

    def text(self, name):
        return SAYS[name].decode()

    def check(self):
        """Still right? Alive, and a known answer comes out whole."""
        assert (
            self.process.poll() is None
        ), f"{self.kind} ended: {self.process.returncode} {self.stderr()}"
        reply = self.chat(self.say("check"), temperature=0)
        assert reply.status == 200, reply
        choice = reply.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (
            self.text("check"),
            "stop",
        ), reply


SAYS = {}  # filled by conftest.py: chain name -> bytes


def start_fake(log, key=None, **env):
    names = {f"TENON_FAKE_{k.upper()}": str(v) for k, v in env.items()}
    if key:
        names["TENON_FAKE_API_KEY"] = key
    return Server("fake", [fake_server_path()], log, env={"TENON_FAKE_PORT": "0"} | names, key=key)


def start_real(log, model, *flags, chains=None, key=None):
    command = [TENON, "serve", "--port", "0", *(["--model", model] if model else []), *flags]
    return Server("real", command, log, chains=chains, key=key)


def run_tenon(*args, stdin=b"", timeout=120):
    """A command to its end: (exit code, stdout, stderr) as text."""
    done = subprocess.run(
        [str(TENON), *map(str, args)], input=stdin, capture_output=True, timeout=timeout * PATIENCE
    )
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )


# --- raw bytes


def head(method, path, *headers, host="localhost"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"host: {host}", *headers, "", ""]).encode(
        "latin-1"
    )


def chat_body(**fields):
    return json.dumps(
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, **fields}
    ).encode()


def read_reply(stream, no_body=False):
    """One answer from a socket file; None at its end."""
    line = stream.readline()
    if not line:
        return None
    status = int(line.split()[1])
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = b""
    if no_body or status < 200 or status == 204:
        pass
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(stream.readline(), 16):
            body += stream.read(size)
            stream.readline()
        stream.readline()
    elif "content-length" in headers:
        body = stream.read(int(headers["content-length"]))
    else:
        body = stream.read()
    return Reply(status, headers, body)


def exchange(server, payload, replies=1, timeout=20):
    """Sends bytes as they are and reads so many answers (fewer when the server closes)."""
    with server.connect(timeout) as connection, connection.makefile("rb") as stream:
        try:
            connection.sendall(payload)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the end; the answer is there to read
        out = []
        while len(out) < replies and (reply := read_reply(stream)):
            out.append(reply)
        return out


# --- paired runs


def joined(events, surface="chat"):
    """A stream put together: {index: {"text", "finish", "logprobs"}} and its usage."""
    choices, usage = {}, None
    for event in events:
        if not event["choices"]:
            usage = event.get("usage") or usage
        for choice in event["choices"]:
            one = choices.setdefault(choice["index"], {"text": "", "finish": None, "logprobs": []})
            assert one["finish"] is None, f"a chunk after finish_reason: {event}"
            piece = choice["delta"].get("content") if surface == "chat" else choice["text"]
            one["text"] += piece or ""
            one["finish"] = choice["finish_reason"]
            if choice.get("logprobs") and surface == "chat":
                one["logprobs"] += choice["logprobs"]["content"]
    return choices, usage


def whole(value, surface="chat"):
    """The same form of an answer that was not streamed."""
    choices = {}
    for choice in value["choices"]:
        text = choice["message"]["content"] if surface == "chat" else choice["text"]
        logprobs = (choice.get("logprobs") or {}).get("content") or [] if surface == "chat" else []
        choices[choice["index"]] = {
            "text": text,
            "finish": choice["finish_reason"],
            "logprobs": logprobs,
        }
    return choices, value["usage"]


def both_ways(server, content, surface="chat", **fields):
    """The law stream = non-stream: sends it both ways and compares; its choices and usage."""
    send = server.chat if surface == "chat" else server.completion
    plain = send(content, **fields)
    assert plain.status == 200, plain
    stream = send(content, stream=True, stream_options={"include_usage": True}, **fields)
    assert stream.status == 200, stream
    for event in stream.events():
        json.dumps(event, ensure_ascii=False).encode("utf-8")  # a lone surrogate raises
    expected, usage = whole(plain.json(), surface)
    got, stream_usage = joined(stream.events(), surface)
    assert got == expected, f"streamed {got}\nwhole    {expected}"
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [stream_usage[c] for c in counts] == [usage[c] for c in counts], (stream_usage, usage)
    return expected, usage
