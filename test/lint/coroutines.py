#!/usr/bin/env python3
"""Finds two constructs in coroutines that g++ 12 compiles wrongly or rejects.

* Braces in a statement that contains co_await. If they make a temporary that is an aggregate with a
  non-trivial member, g++ 12 silently destroys it twice, even if the braces are empty. Such a
  statement may have braces only for a type that the sources show to have nothing to destroy, and
  for an empty payload, which is a span, in a call of an endpoint's `send`, `receive` or
  `rendezvous`. Parentheses are safe.
* `(co_await x).member`, which g++ 12 rejects in templates.

`--self-test` proves that both are found.
"""

import functools
import re
import sys

import sources

token = re.compile(r"[A-Za-z_]\w*|->|::|\d[\w'.]*|\S")
heads = re.compile(r"\b(struct|class|union|enum|namespace|extern)\b")

# Types that are known by name to have nothing to destroy: a view, and the template parameter of
# every architecture for its collective algorithm, which has no state.
views = {"span", "Collective"}
verbs = {"send", "receive", "rendezvous"}


def body(text: str, begin: int) -> str:
    """Returns the text between the brace at `begin` and its closing brace, without the contents of
    nested braces."""
    inside, depth = [], 0
    for letter in text[begin:]:
        depth -= letter == "}"
        if depth == 0 and inside:
            break
        if depth <= 1:
            inside.append(letter)
        depth += letter == "{"
    return "".join(inside)[1:]


@functools.cache
def is_plain(name: str, text: str) -> bool:
    """Returns whether `text` defines an enumeration of this name, or structs of this name whose
    data members are all numbers, enumerators or pointers."""
    if re.search(rf"\benum (class )?{name}\b", text):
        return True
    number = r"(std::)?(size_t|byte|u?int\d+_t|unsigned|int|float|double|bool)|[\w:<> ]+\*+"
    bodies = [body(text, match.end() - 1)
              for match in re.finditer(rf"\bstruct {name}\b[^;{{(]*{{", text)]
    for statement in (each.strip() for inside in bodies for each in re.split(r"[;}]", inside)):
        statement = re.sub(r"^(private|public|protected):\s*", "", statement)
        if not statement or "(" in statement or re.match(r"static|using|friend|template", statement):
            continue
        kind = re.sub(r"^const |\s*\w+\s*(\{|=.*)?$", "", statement, flags=re.S)
        enumerated = rf"\benum (class )?{re.escape(kind.split('::')[-1])}\b" if kind else r"$^"
        if not re.fullmatch(number, kind) and not re.search(enumerated, text):
            return False
    return bool(bodies)


class Statement:
    """The current statement of a block, as far as it has been read."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.words: list[str] = []
        self.open: list[str] = []  # unclosed brackets, and unclosed braces of initialisers
        self.awaits = False
        # For each initialiser's brace: its offset, the words before it, and whether it is empty.
        self.braces: list[tuple[int, list[str], bool]] = []


def opens_block(words: list[str]) -> bool:
    """Returns whether a brace after these words begins a block of statements or members. Otherwise
    it begins an initialiser."""
    last = words[-1] if words else ";"
    if last in {";", ")", "]", "}", ":", "else", "do", "try", "requires", "mutable", "noexcept",
                "const", "override", "final"}:
        return True
    text = collapsed(" ".join(words), r"<[^<>]*>")
    # True after a head such as `struct x : y`, and after a trailing return type, `-> type`.
    return bool(heads.search(text) and "=" not in text and "(" not in text
                or re.search(r"\) (?:mutable |noexcept |const )*-> [\w: ]+$", text))


def destroys_nothing(words: list[str], empty: bool, everything: str) -> bool:
    """Returns whether a brace after these words of its statement makes something that is known to
    have nothing to destroy. `everything` is the text of all sources."""
    named = collapsed(" ".join(words), r" ?<[^<>]*>$").split(" ")[-1]
    if re.fullmatch(r"[A-Za-z_]\w*", named):
        return named in views or is_plain(named, everything)
    called = re.findall(r"(\w+) \(", collapsed(" ".join(words), r"\([^()]*\)"))
    return empty and bool(called) and called[-1] in verbs


def collapsed(text: str, innermost: str) -> str:
    """Returns the text without the matches of `innermost`, which are removed until none is left."""
    while (shorter := re.sub(innermost, "", text)) != text:
        text = shorter
    return text


def faults_in(text: str, everything: str) -> list[tuple[int, str]]:
    found = [(match.start(), "(co_await x).member is rejected in templates. Fix: bind it to a name")
             for match in re.finditer(r"\(\s*co_await\b", text)
             if re.match(r"\s*(\.|->)", text[closing(text, match.start()):])]
    blocks = [Statement()]

    def end() -> None:
        here = blocks[-1]
        if here.awaits:
            found.extend((offset, "braces in a statement that awaits: g++ 12 may destroy what they "
                          "make twice. Fix: name it first, or use parentheses")
                         for offset, words, empty in here.braces
                         if not destroys_nothing(words, empty, everything))
        here.clear()

    for match in token.finditer(text):
        word, here = match[0], blocks[-1]
        if word == "co_await" and here.words[-1:] != ["operator"]:
            here.awaits = True
        if word in "([":
            here.open.append(word)
        elif word in ")]" and here.open:
            here.open.pop()
        elif word == "{":
            if opens_block(here.words):
                lambdas = here.open or "=" in here.words or "return" in here.words
                if not lambdas:
                    end()  # a block's head counts as a statement: `if (co_await x) {`
                blocks.append(Statement())
                continue
            here.open.append(word)
            empty = text[match.end():].lstrip().startswith("}")
            here.braces.append((match.start(), list(here.words), empty))
        elif word == "}":
            if here.open and here.open[-1] == "{":
                here.open.pop()
            else:
                end()
                if len(blocks) > 1:
                    blocks.pop()
                    blocks[-1].words.append("}")
                    if not blocks[-1].open and blocks[-1].words == ["}"]:
                        blocks[-1].words.clear()
                continue
        elif word == ";" and not here.open:
            end()
            continue
        here.words.append(word)
    return found


def closing(text: str, begin: int) -> int:
    """Returns the offset just after the parenthesis that closes the one at `begin`."""
    depth = 0
    for offset in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[offset], 0)
        if depth == 0:
            return offset + 1
    return len(text)


def faults(texts: dict[str, str]) -> list[str]:
    # Comments and preprocessor lines contain no statements. Blanking them keeps line numbers.
    plain = {path: re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                          lambda line: re.sub(r"[^\n]", " ", line[0]),
                          sources.without_comments(text), flags=re.M)
             for path, text in texts.items()}
    everything = "\n".join(plain.values())
    return [f"{path}:{text.count(chr(10), 0, offset) + 1}: {sentence}"
            for path, text in plain.items() if "co_await" in text
            for offset, sentence in sorted(faults_in(text, everything))]


def self_test() -> None:
    twice, rejected = "destroy", "rejected"
    planted = [
        ("co_await f(agg{1, text});", twice),
        ("co_await self.send({first, second});", twice),
        ("co_await self.push(0, {});", twice),
        ("co_await agg{}.run(self);", twice),
        ("co_await f(std::vector<std::vector<int>>{});", twice),
        ("co_await self.send(holder{});", twice),
        ("co_await f(stateless{}, hidden{});", twice),
        ("auto all = std::vector{co_await x, y};", twice),
        ("co_return answer{co_await x};", twice),
        ("if (co_await f(agg{})) {\n  go();\n}", twice),
        ("for (auto& each : co_await f({1})) {\n}", twice),
        ("start([&]() -> task { co_await f(agg{}); });", twice),
        ("co_await f([&] { return agg{1}; }, agg{});", twice),
        ("const auto size = (co_await x).size();", rejected),
        ("use((co_await f(a(), b()))->c);", rejected),
        ("co_await self.send(0, {});", ""),
        ("co_await self.send(tag(1), {});", ""),
        ("co_await self.send(mark{1, 2}, std::span<const std::byte>{});", ""),
        ("co_await Collective{}.run(self);", ""),
        ("co_await stateless{}.run(self);", ""),
        ("co_await engine.arrival(channel{0});", ""),
        ("co_await f(linked{1});", ""),
        ("co_await f(odd{1});", twice),
        ("agg named{1};\nco_await f(named);", ""),
        ("co_await f(agg());", ""),
        ("if (co_await x) {\n  agg named{};\n}", ""),
        ("while (co_await x) {\n  int a[] = {1, 2};\n}", ""),
        ("co_await f([&] { return agg{1}; });", ""),
        ("auto body = [&]() -> task { co_await f(); };\nagg named{};", ""),
        ("// co_await f(agg{});\nagg a{};", ""),
        ('agg a{"co_await"};', ""),
        ("for (int i{}; i < n; ++i) {\n  co_await x;\n}", ""),
        ("try {\n  co_await x;\n} catch (...) {\n  agg a{};\n}", ""),
        ("const auto x = (co_await y);\nreturn (z).size();", ""),
    ]
    types = ("struct agg {\n  int n{};\n  std::string text;\n};\nstruct holder {\n  std::string s;\n"
             "  int go() const { return 1; }\n};\nenum class channel { data };\nstruct mark {\n"
             "  channel c{};\n  std::uint32_t n{};\n  friend bool operator==(mark, mark) = default;"
             "\n};\nstruct stateless {\n  int run();\n private:\n  static constexpr int n = 1;\n};\n"
             "struct hidden {\n private:\n  std::string s;\n};\n"
             "struct linked {\n  stateless** before{};\n};\n"
             "struct odd {\n  std::vector<int**> rows;\n};\n")
    frames = ["task go() {{\n{}\n}}\n", "namespace n {{\nstruct s final : b {{\n  int m{{}};\n"
              "  template <class E>\n  task go(E& e) const {{\n{}\n  }}\n}};\n}}\n"]
    for frame in frames:
        for snippet, sentence in planted:
            sources.expect(faults({"types": types, "planted": frame.format(snippet)}), sentence, snippet)
    print(f"{len(planted)} planted statements judged in {len(frames)} places")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sources.finish(faults(sources.read(*sources.code)))
