"""The container installs what install.sh lists, and no list of its own can drift from that."""

import json
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL = "common/scripts/install.sh"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
EDITOR = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
# What must be there before install.sh can run, and to fetch and build the sources.
FIRST = {"ca-certificates", "git", "make"}
# What a user who is not root needs, to push and to let make install more.
FOR_USERS = {"openssh-client", "sudo"}


class Container(unittest.TestCase):
    def test_packages_come_from_install_sh(self) -> None:
        listed = re.findall(r"apt-get install((?: +\S+)*?)(?= *(?:&&|$))", DOCKERFILE, flags=re.M)
        words = {word for line in listed for word in line.split() if not word.startswith("-")}
        self.assertEqual(words, FIRST | FOR_USERS)
        groups = re.search(rf"RUN sh /tmp/{Path(INSTALL).name} ([\w ]+?) *&&", DOCKERFILE)
        self.assertIsNotNone(groups)
        self.assertLessEqual({"build", "course", "docs", "format"}, set(groups[1].split()))
        # install.sh refuses an unknown group before it looks at anything else.
        for more, refused in (([], False), (["no-such-group"], True)):
            done = subprocess.run(["/bin/sh", ROOT / INSTALL, *groups[1].split(), *more],
                                  check=False, capture_output=True, text=True,
                                  env={"INSTALL": "no", "PATH": ""}, timeout=60)
            self.assertEqual("unknown group" in done.stderr, refused, done.stderr)

    def test_what_it_copies_is_there_and_reaches_it(self) -> None:
        copied = re.findall(r"(?m)^COPY (\S+) ", DOCKERFILE)
        self.assertEqual(copied, [INSTALL])
        self.assertTrue((ROOT / INSTALL).is_file())
        ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
        self.assertIn(f"!{INSTALL}", ignored)

    def test_its_user_is_not_root_and_the_editors_too(self) -> None:
        user = re.findall(r"(?m)^USER (\S+)$", DOCKERFILE)[-1]
        self.assertNotEqual(user, "root")
        self.assertRegex(DOCKERFILE, rf"useradd [^&]* {user} ")
        self.assertIn(f"'{user} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{user}\n", DOCKERFILE)
        self.assertEqual(EDITOR["remoteUser"], user)
        built = (ROOT / ".devcontainer" / EDITOR["build"]["dockerfile"]).resolve()
        self.assertEqual(built, ROOT / "Dockerfile")

    def test_the_editor_reads_the_commands_of_the_build_that_it_configures(self) -> None:
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        preset = re.search(r"cmake --preset (\S+)", EDITOR["postCreateCommand"])[1]
        self.assertIn(preset, [each["name"] for each in presets["configurePresets"]])
        settings = EDITOR["customizations"]["vscode"]["settings"]
        self.assertEqual(settings["C_Cpp.default.compileCommands"],
                         f"${{workspaceFolder}}/build/{preset}/compile_commands.json")

    def test_no_system_converts_the_line_ends_of_a_script(self) -> None:
        text = (ROOT / ".gitattributes").read_text(encoding="utf-8")
        self.assertIn("* -text", text.splitlines())


if __name__ == "__main__":
    unittest.main()
