"""The console without a browser: its forms, and log-ins as a browser would send them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx
from browsing import check_headers
from console_journal import RIGHT_ID
from waits import WAIT_SECONDS

COOKIE = "proctor_console"
HTML = {"Accept": "text/html,application/xhtml+xml"}
"""What a browser asks for."""
PLAYGROUND, LOGIN, LOGOUT = "/console/playground", "/console/login", "/console/logout"
REPLAY = f"/console/evaluations/{RIGHT_ID}/replay"
SENDERS = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://localhost"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": ""},
]
"""What a browser says of a form from elsewhere; an empty header is not sent."""


@dataclass
class Form:
    """A form of a page; `fields` as it stands there."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._select: str | None = None
        self._option: dict[str, str | None] | None = None
        self._text: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").lower()))
        elif self.forms and (name := given.get("name")):
            fields = self.forms[-1].fields
            if tag == "input":
                is_box = given.get("type") in ("checkbox", "radio")
                if not is_box or "checked" in given:
                    fields[name] = given.get("value", "on" if is_box else "")
            elif tag == "textarea":
                self._text = name
                fields[name] = ""
            elif tag == "select":
                self._select = name
        elif tag == "option" and self._select:
            self._option = {"value": None, **given}

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        elif tag == "option":
            self._option = None
        elif tag == "textarea" and self._text is not None:
            fields = self.forms[-1].fields
            fields[self._text] = fields[self._text].removeprefix("\n")
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self.forms[-1].fields[self._text] += data
        elif self._option is not None and self._select is not None:
            fields, value = self.forms[-1].fields, self._option["value"]
            if self._select not in fields or "selected" in self._option:
                fields[self._select] = data if value is None else value


def forms(answer: httpx.Response) -> list[Form]:
    """The forms of a page."""
    parser = _Forms()
    parser.feed(answer.text)
    return parser.forms


def form(answer: httpx.Response, action: str) -> Form:
    """The form of a page that is sent to `action`."""
    found = [each for each in forms(answer) if each.action == action]
    assert len(found) == 1, (action, [each.action for each in forms(answer)])
    return found[0]


def origin(client: httpx.Client) -> dict[str, str]:
    """What a browser says of a form that came from the service's own page."""
    url = client.base_url
    return {"Origin": f"{url.scheme}://{url.netloc.decode()}", "Sec-Fetch-Site": "same-origin"}


def post(
    client: httpx.Client,
    path: str,
    fields: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """Sends a form as a browser would, and checks the headers of the answer."""
    given = {**HTML, **origin(client), **(headers or {})}
    # A header that is empty here is left out.
    answer = client.post(
        path, data=dict(fields), headers={name: text for name, text in given.items() if text}
    )
    check_headers(answer.headers)
    return answer


def get(client: httpx.Client, path: str, status: int = 200) -> httpx.Response:
    """Asks for a page as a browser would, and checks the answer."""
    answer = client.get(path, headers=HTML)
    assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:2000]}"
    assert answer.headers["content-type"].replace(" ", "").lower() == "text/html;charset=utf-8"
    check_headers(answer.headers)
    return answer


def log_in(client: httpx.Client, token: str, next_: str = "/console") -> httpx.Response:
    """Logs in with the form that a page without a cookie is."""
    page = get(client, next_, 401)
    found = form(page, "/console/login")
    assert found.method == "post"
    return post(client, found.action, {**found.fields, "token": token})


@contextmanager
def visitor(url: str, token: str | None = None) -> Iterator[httpx.Client]:
    """A client that keeps cookies, logged in if a token is given."""
    with httpx.Client(base_url=url, timeout=4 * WAIT_SECONDS, trust_env=False) as client:
        if token is not None:
            answer = log_in(client, token)
            assert answer.status_code == 303, answer.text
            assert client.cookies.get(COOKIE)
        yield client


def csrf(client: httpx.Client) -> str:
    """What the forms of a visit carry."""
    page = get(client, PLAYGROUND)
    found = {each.fields["csrf"] for each in forms(page) if "csrf" in each.fields}
    assert len(found) == 1
    return found.pop()


def bodies(token: str) -> dict[str, dict[str, str]]:
    """Each form that changes or starts something, filled in."""
    judged = {"completion": "x = 1", "kind": "exec", "tests": "", "language": "python"}
    return {
        PLAYGROUND: {**judged, "stdin": "", "csrf": token},
        REPLAY: {"csrf": token},
        LOGOUT: {"csrf": token},
    }
