"""Writes a C file that refers to every function the installed headers declare.

usage: public_symbols.py INCLUDE_DIR OUTPUT.c ABSENT [compiler arguments…]

Linked into a program, the file fails to link if a header promises a function that no library of the
package defines. ABSENT is a pattern of headers whose functions this build does not have; "" if it has
all. Needs libclang (Debian: python3-clang-14), which knows the mangled names.
"""

import pathlib
import sys

from clang import cindex

SCOPES = {
    cindex.CursorKind.NAMESPACE,
    cindex.CursorKind.CLASS_DECL,
    cindex.CursorKind.STRUCT_DECL,
    cindex.CursorKind.TRANSLATION_UNIT,
    cindex.CursorKind.UNEXPOSED_DECL,
}
FUNCTIONS = {
    cindex.CursorKind.FUNCTION_DECL,
    cindex.CursorKind.CXX_METHOD,
    cindex.CursorKind.CONSTRUCTOR,
    cindex.CursorKind.DESTRUCTOR,
    cindex.CursorKind.CONVERSION_FUNCTION,
}


def is_within(file, folder):
    return file is None or pathlib.Path(file.name).resolve().is_relative_to(folder)


def is_promised(cursor):
    """Whether a declaration promises a definition in a library."""
    if cursor.kind not in FUNCTIONS or cursor.get_definition() is not None:
        return False
    if cursor.is_pure_virtual_method() or cursor.is_default_method():
        return False
    return cursor.availability != cindex.AvailabilityKind.NOT_AVAILABLE  # deleted


def promised_functions(cursor, include, absent):
    for child in cursor.get_children():
        file = child.location.file
        if not is_within(file, include) or (file and absent and pathlib.Path(file.name).match(absent)):
            continue
        if is_promised(child):
            yield child
        elif child.kind in SCOPES:
            yield from promised_functions(child, include, absent)


def symbol_of(cursor):
    # libclang gives a constructor's or destructor's complete variant among several.
    name = cursor.mangled_name
    return name.replace("C2E", "C1E", 1).replace("D0Ev", "D1Ev", 1)


def main():
    include = pathlib.Path(sys.argv[1]).resolve()
    headers = sorted((include / "sape2").rglob("*.h"))
    text = "".join(f'#include "{header.relative_to(include)}"\n' for header in headers)
    unit = cindex.Index.create().parse(
        "all_headers.cpp",
        args=["-std=c++20", "-ferror-limit=0", f"-I{include}", *sys.argv[4:]],
        unsaved_files=[("all_headers.cpp", text)],
    )
    # Clang stumbles over LibTorch 1.13's headers in C++20 without losing declarations; ours must be
    # clean, and none may be missing.
    errors = [
        d
        for d in unit.diagnostics
        if d.severity == cindex.Diagnostic.Fatal
        or (d.severity == cindex.Diagnostic.Error and is_within(d.location.file, include))
    ]
    if errors:
        sys.exit("public_symbols: the headers do not parse:\n" + "\n".join(map(str, errors)))

    symbols = sorted({symbol_of(cursor) for cursor in promised_functions(unit.cursor, include, sys.argv[3])})
    if not symbols:
        sys.exit(f"public_symbols: the headers in {include} declare no function")
    with open(sys.argv[2], "w", encoding="ascii") as out:
        for symbol in symbols:
            out.write(f"void {symbol}(void);\n")
        out.write("void (*sape2_public_functions[])(void) = {\n")
        out.writelines(f"    {symbol},\n" for symbol in symbols)
        out.write("};\n")
    print(f"public_symbols: {len(headers)} headers, {len(symbols)} functions")


main()
