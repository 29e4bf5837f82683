"""Who registered hears, in that order, whatever happens to the others."""

from penstock.core.news import News


def test_they_hear_in_the_order_of_their_registration() -> None:
    heard: list[tuple[int, str]] = []
    news: News[str] = News(lambda name, error: None)
    for number in (3, 1, 2):
        news.register(lambda said, number=number: heard.append((number, said)))  # type: ignore[misc]
    news.tell("a")
    news.tell("b")
    assert heard == [(3, "a"), (1, "a"), (2, "a"), (3, "b"), (1, "b"), (2, "b")]


def test_an_error_keeps_neither_the_others_nor_the_teller() -> None:
    heard: list[str] = []
    failed: list[tuple[str, str]] = []
    news: News[str] = News(lambda name, error: failed.append((name, str(error))))

    def deaf(said: str) -> None:
        raise ValueError(f"cannot hear {said}")

    news.register(deaf)
    news.register(heard.append)
    news.tell("a")
    news.tell("b")
    assert heard == ["a", "b"]
    assert [error for _, error in failed] == ["cannot hear a", "cannot hear b"]
    assert all(name.endswith("deaf") for name, _ in failed)


def test_who_registers_while_news_is_told_hears_of_the_next() -> None:
    heard: list[str] = []
    news: News[str] = News(lambda name, error: None)

    def join(said: str) -> None:
        if said == "a":
            news.register(heard.append)

    news.register(join)
    news.tell("a")
    news.tell("b")
    assert heard == ["b"]
