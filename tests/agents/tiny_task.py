"""A task that takes no time: three numbers are to be named; and what drives agents through it offline."""

import json
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl

from agml_assets.agents.task import AgentTask
from agml_assets.registry.agents import AgentEntry, AgentTaskEntry, Limits, Submission

STARTER = """\
open("submission.csv", "w").write("id,label\\na,1\\nb,0\\nc,0\\n")
print("one of three is right, perhaps")
"""

BETTER = "id,label\na,1\nb,2\nc,0\n"
BEST = "id,label\na,1\nb,2\nc,3\n"


def make_task(root: Path, **changes) -> AgentTask:
    """Right answers are a: 1, b: 2, c: 3."""
    env, private, public = root / "env", root / "private", root / "public"
    for folder in (env / "notes", private, public):
        folder.mkdir(parents=True)
    (env / "train.py").write_text(STARTER)
    (env / "rules.txt").write_text("as they were")
    (env / "notes" / "fixed.txt").write_text("as it was")
    (public / "train.csv").write_text("id,label\nx,2\ny,2\nz,5\n")
    (public / "sample_submission.csv").write_text("id,label\na,0\nb,0\nc,0\n")
    pl.DataFrame({"id": ["a", "b", "c"], "label": [1, 2, 3]}).write_parquet(private / "answers.parquet")
    return open_again(root, **changes)


def open_again(root: Path, **changes) -> AgentTask:
    """The task that was made in a folder."""
    entry = {
        "key": "tiny",
        "folder": str(root),
        "metric": "accuracy",
        "submission": Submission(id_column="id", columns={"label": "integer"}),
        "limits": Limits(steps=10, seconds=60, seconds_per_command=20, memory_mb=2048),
    }
    return AgentTask(
        AgentTaskEntry(**(entry | changes)),
        "Name the numbers.",
        root / "env",
        root / "private",
        "digest-of-tiny",
        read_only=("./rules.txt", "notes/*"),
        public={"data": root / "public"},
    )


def scripted(tmp_path: Path, *actions: tuple[str, dict]) -> AgentEntry:
    """An agent that plays these actions."""
    file = tmp_path / f"script_{len(list(tmp_path.glob('script_*.json')))}.json"
    file.write_text(json.dumps([{"action": name, "arguments": arguments} for name, arguments in actions]))
    return AgentEntry(key="played", kind="scripted", script=str(file))


def write(content: str, file: str = "submission.csv") -> tuple[str, dict]:
    return "write_file", {"file_name": file, "content": content}


DONE = ("final_answer", {"final_answer": "done"})

PYTHON = Path(sys.executable)


class Answers:
    """What the server says, in order: a text, a call of a tool, an HTTP error, or a raw body."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked: list[dict] = []
        self.keys: list[str] = []
        self.usage: dict | None = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

    def next(self):
        return self.answers.pop(0) if self.answers else "I have nothing more to say."


@contextmanager
def serving(answers: Answers, monkeypatch):
    """Serve OpenAI's chat completions on loopback; yields the name of the model."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers.asked.append(body)
            answers.keys.append(self.headers.get("Authorization", ""))
            one = answers.next()
            status, text = 200, ""
            if isinstance(one, tuple) and one[0] == "wait":
                time.sleep(one[1])
                return
            if isinstance(one, tuple) and isinstance(one[0], int):
                status, text = one
            else:
                message: dict = {
                    "role": "assistant",
                    "content": one if isinstance(one, str) else one.get("text", ""),
                }
                if isinstance(one, dict):
                    arguments = one["arguments"]
                    if "reasoning" in one:
                        message["reasoning_content"] = one["reasoning"]
                    message["tool_calls"] = [
                        {
                            "id": f"call_{len(answers.asked)}",
                            "type": "function",
                            "function": {
                                "name": one["tool"],
                                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                            },
                        }
                    ] * (1 + one.get("also", 0))
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                whole = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
                text = json.dumps({**whole, "choices": [choice], "usage": answers.usage})
            payload = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("LOCAL_API_KEY", "sk-local-secret-000111")
    monkeypatch.setenv("LOCAL_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    try:
        yield "openai-api/local/test"
    finally:
        server.shutdown()
        server.server_close()


def call(tool: str, text: str = "", **arguments) -> dict:
    return {"tool": tool, "arguments": arguments, "text": text}
