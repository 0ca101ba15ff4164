"""The summary of the action as a comment on the pull request: one for each project, kept up to date.

    TOKEN=... python pull_request_comment.py PROJECT summary.md

What GitHub sets says which pull request: $GITHUB_EVENT_NAME, $GITHUB_EVENT_PATH, $GITHUB_REPOSITORY, $GITHUB_API_URL.
Nothing is done for other events. A comment that cannot be written, as by the token of a fork, is a warning.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

LONGEST = 65000  # characters; GitHub takes 65,536
PAGE = 100
SECONDS = 30.0
CUT = "\nThe summary of the job has the rest.\n"

Api = Callable[..., Any]
"""api(method, path, **fields): the answer. Raises OSError or ValueError."""


def main(arguments: Sequence[str]) -> int:
    project, summary = arguments
    text = Path(summary).read_text(encoding="utf-8") if Path(summary).is_file() else ""
    token = os.environ.get("TOKEN", "")
    if not (text and token) or os.environ.get("GITHUB_EVENT_NAME") != "pull_request":
        return 0
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        of = f"repos/{os.environ['GITHUB_REPOSITORY']}/issues"
        comment(api(os.environ["GITHUB_API_URL"], token), of, int(event["pull_request"]["number"]), project, text)
    except (OSError, ValueError) as error:
        hint = "the job needs the permission pull-requests: write, which the token of a fork never has"
        said = " ".join(f"no comment on the pull request: {error}".split())
        print(f"::warning::{said.replace('%', '%25')} ({hint})")
    return 0


def api(address: str, token: str) -> Api:
    def ask(method: str, path: str, **fields: str) -> Any:
        data = json.dumps(fields).encode() if fields else None
        request = Request(f"{address}/{path}", data, method=method)
        request.add_header("Accept", "application/vnd.github+json")
        request.add_unredirected_header("Authorization", f"Bearer {token}")
        with urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)

    return ask


def comment(ask: Api, of: str, number: int, project: str, text: str) -> None:
    """Writes the project's comment anew, or a first one. of: the repository's path of issues."""
    marker = f"<!-- nmpconv build {quote(project)} -->"
    if len(text) > LONGEST:
        text = text[: text.rindex("\n", 0, LONGEST)] + CUT
    comments = f"{of}/{number}/comments"
    mine = _author(ask)
    page, found = 1, ask("GET", f"{comments}?per_page={PAGE}&page=1")
    while found:
        for one in found:
            if one["body"].startswith(marker) and mine(one["user"]):
                ask("PATCH", f"{of}/comments/{one['id']}", body=f"{marker}\n{text}")
                return
        page += 1
        found = ask("GET", f"{comments}?per_page={PAGE}&page={page}") if len(found) == PAGE else []
    ask("POST", comments, body=f"{marker}\n{text}")


def _author(ask: Api) -> Callable[[dict[str, Any]], bool]:
    """Checks that a user is the token's: other people may copy the marker. The token of a job has no user but a bot."""
    try:
        login = ask("GET", "user")["login"]
    except HTTPError as error:
        if error.code != 403:
            raise
        return lambda user: bool(user["type"] == "Bot")
    return lambda user: bool(user["login"] == login)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
