"""No module imports one that imports it, whether at its top or within a function."""

import pytest


def circles(package: str) -> list[list[str]]:
    """Groups of modules of a package that import each other; imports for type checkers alone do not count."""
    grimp = pytest.importorskip("grimp", reason="grimp comes with import-linter, which develops vcycle")
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # A module that imports none of those left is in no circle; nor is one that none of those left imports.
    left = dict(imported)
    while loose := [
        module
        for module, others in left.items()
        if not left.keys() & others or not any(module in found for found in left.values())
    ]:
        for module in loose:
            del left[module]
    found = [frozenset(_reached(module, left)) for module in left]
    return sorted(sorted(group) for group in {group for group in found if len(group) > 1})


def _reached(start: str, imported: dict[str, set[str]]) -> set[str]:
    """The modules that a module reaches by its imports, and that reach it."""
    back = {module: {other for other, found in imported.items() if module in found} for module in imported}
    reached = []
    for edges in (imported, back):
        seen, ahead = {start}, [start]
        while ahead:
            ahead = [module for module in {m for a in ahead for m in edges[a] & edges.keys()} if module not in seen]
            seen.update(ahead)
        reached.append(seen)
    return reached[0] & reached[1]


def test_no_modules_import_each_other():
    assert circles("vcycle") == []


def test_circles_are_found(tmp_path, monkeypatch):
    modules = {
        "__init__": "",
        "a": "from ringed import b",
        "b": "def use():\n    from ringed import c",
        "c": "import ringed.a",
        "d": "from typing import TYPE_CHECKING\nimport ringed.a\nif TYPE_CHECKING:\n    import ringed.e",
        "e": "import ringed.d",
        "f": "import ringed.g",
        "g": "import ringed.f, ringed.a",
    }
    (tmp_path / "ringed").mkdir()
    for name, text in modules.items():
        (tmp_path / "ringed" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("ringed") == [["ringed.a", "ringed.b", "ringed.c"], ["ringed.f", "ringed.g"]]
