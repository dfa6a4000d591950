"""A Tenon server of one's own, on a free port of loopback."""

import http.client
import json
import re
import subprocess


class Server:
    def __init__(self, binary, *flags):
        command = [binary, "serve", "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)\s*$", self.process.stdout.readline())[1])

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def open(self, path, body=None, timeout_s=1800):
        """The response, to be read as it comes; a body is posted as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        return connection.getresponse()

    def ask(self, path, body=None):
        return json.loads(self.open(path, body, timeout_s=60).read())
