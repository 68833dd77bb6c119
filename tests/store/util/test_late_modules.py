"""Packages that import their modules at the first use."""

import sys

import pytest

from twinlog.store.util.late_modules import late_modules


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(
        "from twinlog.store.util.late_modules import late_modules\n__getattr__ = late_modules(__name__)\n"
    )
    (tmp_path / "lazy" / "good.py").write_text("VALUE = 7\n")
    (tmp_path / "lazy" / "needy.py").write_text("import a_module_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    import lazy

    yield lazy
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy"]:
        del sys.modules[name]


def test_a_module_is_imported_at_its_first_use(package):
    assert "lazy.good" not in sys.modules
    assert package.good.VALUE == 7
    assert package.good is sys.modules["lazy.good"]


def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="lazy has no module absent"):
        package.absent  # noqa: B018
    assert not hasattr(package, "absent")


def test_a_missing_dependency_is_not_hidden(package):
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_installed"):
        package.needy  # noqa: B018


def test_names_of_the_product_are_modules():
    with pytest.raises(AttributeError):
        late_modules("twinlog.cluster.observe")("absent")
