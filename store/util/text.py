"""Numbers in sentences, for messages of all packages."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 record", "2 records". `many`: a plural that is not formed by an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def agreeing(number: int, one: str, many: str) -> str:
    """The form of a verb that fits a number: agreeing(1, "is", "are")."""
    return one if number == 1 else many
