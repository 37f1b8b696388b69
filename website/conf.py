"""How Sphinx makes the site of the pages that `website/build.py` has put together."""

from effectonce import __version__

project, author, version = "effectonce", "the effectonce authors", __version__
release, copyright = __version__, "the effectonce authors"  # noqa: A001  # Sphinx's name for it
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme, html_title = "furo", f"effectonce {__version__}"
html_static_path, html_favicon = ["static"], "static/icon.svg"
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = False

# Headings are linked to as a code host links to them.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# Docstrings say `name` for code, and types as they are written.
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
