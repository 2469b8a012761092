"""The pages of `make docs`: the checker finds what is broken, and a reader finds the way."""

import contextlib
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import check_site  # noqa: E402
import site_filter  # noqa: E402

GOOD = {
    "index.html": '<h1 id="top">Hello</h1><a href="two.html#end">two</a> <a href="#top">up</a>'
                  '<img src="figure.svg"/><a href="https://example.org/x">elsewhere</a>'
                  '<tt>`[a](b)`</tt><div class="fragment"><div class="line">[a](b)</div></div>',
    "two.html": '<a name="end" href="index.html">back</a><object data="figure.svg"></object>',
    "figure.svg": '<svg xmlns:xlink="x"><a xlink:href="two.html"><text>two</text></a></svg>',
    "tree.js": 'var tree = [["two", "two.html#end", null]];',
}
BROKEN = {
    "a page": ("index.html", '<a href="three.html">x</a>', "three.html: no such file"),
    "an anchor": ("index.html", '<a href="two.html#middle">x</a>', "has no anchor middle"),
    "an anchor of its own": ("two.html", '<a href="#middle">x</a>', "has no anchor middle"),
    "a picture": ("two.html", '<img src="other.svg">', "other.svg: no such file"),
    "a drawing": ("two.html", '<object data="other.svg"></object>', "other.svg: no such file"),
    "within a drawing": ("figure.svg", '<a xlink:href="no.html"/>', "no.html: no such file"),
    "the tree": ("tree.js", 'var more = "no.html";', "no.html: no such file"),
    "a way out": ("index.html", '<a href="../secret.html">x</a>', "leads out of the site"),
    "nothing": ("index.html", '<a href="">x</a>', "empty"),
    "no host": ("index.html", '<a href="https:///x">x</a>', "an address without a host"),
    "a link as text": ("index.html", "<p>[LICENSE](LICENSE)</p>", "not understood: [LICENSE]"),
    "a tag as text": ("index.html", "<p>see &lt;tt&gt;x.</p>", "not understood: <tt>"),
    "emphasis as text": ("index.html", "<p>**so</p>", "not understood: **so"),
    "half of a code": ("index.html", "<p>see x.h` there</p>", "not understood: ` there"),
    "code as text": ("index.html", "<p>see `x.h`.</p>", "not understood: `x.h`"),
}


class Checker(unittest.TestCase):
    def site(self, **changed: str) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        html = Path(folder.name, "html")
        html.mkdir()
        for name, text in {**GOOD, **changed}.items():
            (html / name).write_text(text)
        return html

    def test_a_good_site_passes(self) -> None:
        wrong, seen = check_site.check(self.site())
        self.assertEqual(wrong, [])
        self.assertIn("4 files, 8 links, 2 pictures", seen)

    def test_each_broken_link_is_found_once_where_it_is(self) -> None:
        for what, (name, more, message) in BROKEN.items():
            with self.subTest(what):
                wrong, _ = check_site.check(self.site(**{name: GOOD[name] + "\n" + more}))
                self.assertEqual(len(wrong), 1, wrong)
                self.assertTrue(wrong[0].startswith(f"{name}:2: "), wrong)
                self.assertIn(message, wrong[0])

    def test_a_broken_link_fails_the_command(self) -> None:
        for text, code in ((GOOD["two.html"], 0), ('<a href="no.html">x</a>', 1)):
            folder = self.site(**{"two.html": text + '<a name="end"></a>'})
            with mock.patch.object(sys, "argv", ["check_site.py", str(folder)]), \
                    contextlib.redirect_stdout(io.StringIO()), \
                    contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(check_site.main(), code)

    def test_an_empty_folder_is_no_site(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("no page here", check_site.check(Path(folder))[0][0])


class Filter(unittest.TestCase):
    def test_links_become_references_and_nothing_moves(self) -> None:
        text = ("# 3. Forward\n\n[the\nbook](README.md) [h](../tasks/task3_forward/forward.h)\n"
                "`tasks/task3_forward/forward.h` [MIT](../LICENSE) ![f](figures/memory_ddp.svg)\n"
                "```\n[a](README.md)\n```\n")
        self.assertEqual(
            site_filter.filtered(text, "writeup/3_forward.md"),
            "# Chapter 3. Forward {#writeup_3_forward}\n\n"
            "\n[the book](@ref writeup) [h](@ref task3_forward/forward.h)\n"
            "`tasks/task3_forward/forward.h` `MIT` "
            "![f](figures/memory_ddp.svg)\n```\n[a](README.md)\n```\n")

    def test_a_long_text_has_a_table_of_contents_and_no_line_moves(self) -> None:
        for sections, contents in ((3, "[TOC]"), (2, "")):
            text = "# 3. Forward\n\nText.\n" + "\n## Section\n" * sections
            lines = site_filter.filtered(text, "writeup/3_forward.md").split("\n")
            self.assertEqual(lines[1:3], [contents, "Text."])
            self.assertEqual(len(lines), len(text.split("\n")))

    def test_a_link_to_a_section_leads_to_it(self) -> None:
        self.assertEqual(
            site_filter.filtered("# 2. Flat\n\n## 2.1 The layout, `P`\n[up](#21-the-layout-p)\n",
                                 "writeup/2_flat_parameter.md").split("\n")[2],
            "## 2.1 The layout, `P` {#writeup_2_flat_parameter_21_the_layout_p}")
        self.assertEqual(
            site_filter.filtered("| x | [2.1](2_flat_parameter.md#21-the-layout) |\n",
                                 "writeup/glossary.md"),
            "| x | [2.1](@ref writeup_2_flat_parameter_21_the_layout) |\n")
        self.assertEqual(
            site_filter.filtered("[0](0_why_sharding.md#0-why-sharding)", "writeup/glossary.md"),
            "[0](@ref writeup_0_why_sharding)")

    def test_a_link_to_the_page_that_is_copied_leads_to_the_copy(self) -> None:
        for path, link in (("docs/estimator.md", "playground/index.html"),
                           ("writeup/6_prefetching.md", "../docs/playground/index.html")):
            self.assertEqual(site_filter.filtered(f"[a page]({link})\n", path),
                             "[a page](playground/index.html)\n")

    def test_a_header_whose_name_another_has_is_named_in_full(self) -> None:
        self.assertEqual(
            site_filter.filtered("`tasks/task4_backward/backward.h`", "CONTRIBUTING.md"),
            "[tasks/task4_backward/backward.h](@ref task4_backward/backward.h)")

    def test_code_may_begin_what_is_bold(self) -> None:
        self.assertEqual(site_filter.filtered("**`a` and `b`.** So **c**.\n", "README.md"),
                         "<b>`a` and `b`.</b> So **c**.\n")

    def test_code_may_hold_quotes(self) -> None:
        self.assertEqual(site_filter.filtered("`a` it's `'b' is`\n", "README.md"),
                         "`a` it's ``'b' is``\n")

    def test_what_the_book_lists_lies_below_it(self) -> None:
        self.assertEqual(site_filter.filtered("x\n| 3 | [Forward](3_forward.md) |\n",
                                              "writeup/README.md"),
                         'x\n| 3 | @subpage writeup_3_forward "Forward" |\n')


class ReadersPath(unittest.TestCase):
    """By links that a plain Git host follows, too."""

    def links(self, path: Path) -> set[Path]:
        found = re.findall(r"\]\(([^()#\s]+)(?:#[\w-]+)?\)", path.read_text())
        return {(path.parent / link).resolve() for link in found if "://" not in link}

    def test_from_the_front_page_through_every_chapter_and_task_and_back(self) -> None:
        front, book = ROOT / "README.md", ROOT / "writeup/README.md"
        chapters = sorted((ROOT / "writeup").glob("[0-8]_*.md"))
        handouts = sorted((ROOT / "tasks").glob("task*/README.md"))
        self.assertEqual((len(chapters), len(handouts)), (9, 8))
        self.assertLessEqual({book, *handouts}, self.links(front))
        at_hand = {ROOT / "writeup/glossary.md", ROOT / "writeup/reference_card.md"}
        self.assertLessEqual(at_hand, self.links(front))
        self.assertLessEqual({front, *at_hand, *chapters, *handouts}, self.links(book))
        for page in at_hand:
            self.assertLessEqual({book, *at_hand} - {page}, self.links(page))
        for n, chapter in enumerate(chapters):
            onward = set(chapters[n + 1:n + 2]) | set(handouts[n - 1:n] if n else [])
            self.assertLessEqual({book} | onward, self.links(chapter), chapter)
        for n, handout in enumerate(handouts, 1):
            header = handout.parent / f"{handout.parent.name.split('_', 1)[1]}.h"
            headers = {header} if header.is_file() else {*handout.parent.glob("*.h")}
            onward = {chapters[n], *headers, front, *at_hand}
            if n < 7:  # the eighth is optional
                onward |= {*handouts[n:n + 1]}
            self.assertLessEqual(onward, self.links(handout), handout)


if __name__ == "__main__":
    unittest.main()
