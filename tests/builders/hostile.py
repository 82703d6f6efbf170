"""Completions that try to be more than text: each aims at something that may read them."""

from __future__ import annotations

from pathlib import Path


def hostile_texts(report: str, canary: Path) -> list[str]:
    """Hostile completions; scripts report to the address `report`, commands make `canary`."""
    scripts = [
        f"<script>fetch('{report}/script')</script>",
        f"</script><script>new Image().src='{report}/closed'</script>",
        f"</pre></div><img src='{report}/img' onerror=\"fetch('{report}/onerror')\">",
        f"<svg onload=\"fetch('{report}/svg')\"><animate onbegin=fetch('{report}/begin')></svg>",
        f"<iframe srcdoc=\"<script>fetch('{report}/frame')</script>\"></iframe>",
        f"<style>@import '{report}/style'; body {{background: url({report}/bg)}}</style>",
        f"<link rel=stylesheet href='{report}/link'><base href='{report}/'>",
        f"<meta http-equiv=refresh content='0;url={report}/meta'>",
        f"<a href=\"javascript:fetch('{report}/a')\" autofocus onfocus=fetch('{report}/f')>x</a>",
        f"<input autofocus onfocus=\"fetch('{report}/focus')\"><details open ontoggle=alert(1)>",
        f"<object data='{report}/object'></object><embed src='{report}/embed'>",
        f"<template><img src={report}/t></template><math><mtext><img src={report}/m>",
        f'<!--<script>--><noscript><p title="</noscript><img src={report}/n onerror=alert(1)>">',
        f"]]></style></title></textarea></xmp><img src={report}/close onerror=alert(1)>",
        "&lt;script&gt;alert(1)&lt;/script&gt;&#x3c;img src=x&#x3e;",
        "\u2028alert(1)\u2029</scr\u0000ipt>",
    ]
    templates = ["{{ 7 * 7 }}", "{% include '/etc/passwd' %}", "${7*7} #{7*7} <%= 7*7 %>"]
    formats = ["%s%s%s%n %(x)s", "{0.__class__.__mro__} {!r:>999999999}", "{} {x} }{ {{"]
    commands = [
        f"$(touch {canary})",
        f"`touch {canary}`",
        f"; touch {canary} #",
        f"| touch {canary} && true\n\ntouch {canary}",
        f"__import__('os').system('touch {canary}')",
        f"=cmd|' /C touch {canary}'!A0",
        f"@SUM(1+1)*cmd|' /C touch {canary}'!A0",
        f"!!python/object/apply:os.system ['touch {canary}']",
        f"cos\nsystem\n(S'touch {canary}'\ntR.",
    ]
    queries = ["'; DROP TABLE samples; --", '" OR "1"="1', "problem_id == @__import__('os')"]
    latex = [
        r"\input{/etc/passwd}\write18{touch x}\immediate\openout5=x",
        r"\end{document}\catcode`\$=13 %  & # _ ^ ~ { } $$",
        r"$\frac{1}{$ \mathdefault{\unknown",
        r"\begin{verbatim} }}}}{{{{ \\\\ \newcommand{\x}{\x\x}\x",
    ]
    terminals = ["\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\r\b\b", "\u202egnp.exe\u202c\ufeff"]
    large = [
        "9" * 3000,
        "10**10**10",
        "((" * 400,
        "a" * 50_000 + "!",
        "1" + "0" * 400 + "/3",
        "\n" * 999,
    ]
    paths = [
        "../../../../etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "C:\\windows\\x",
        "con.txt",
    ]
    texts = [
        *scripts,
        *templates,
        *formats,
        *commands,
        *queries,
        *latex,
        *terminals,
        *large,
        *paths,
    ]
    inside = [f"<SOLUTION>{text}</SOLUTION>" for text in texts]
    return [*texts, *inside, *(f"so {text} <SOLUTION>2</SOLUTION>" for text in texts)]
