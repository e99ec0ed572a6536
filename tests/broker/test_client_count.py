"""Who may still come, in all and from one address."""

from poe.broker.connection.client_count import ClientCount


def refusal(count, address):
    error = count.admit(address)
    return None if error is None else (error.limit, error.value)


def test_as_many_as_allowed_and_no_more():
    count = ClientCount(3, None)
    assert [refusal(count, "a") for _ in range(4)] == [None] * 3 + [("connections_max", 3)]
    assert count.count == 3
    count.leave("a")
    assert refusal(count, "b") is None
    assert refusal(count, "b") == ("connections_max", 3)


def test_each_address_has_a_limit_of_its_own():
    count = ClientCount(10, 2)
    assert [refusal(count, "a") for _ in range(3)] == [
        None,
        None,
        ("connections_per_address_max", 2),
    ]
    assert refusal(count, "b") is None
    count.leave("a")
    assert refusal(count, "a") is None
    assert count.count == 3


def test_nothing_is_kept_of_addresses_that_have_left():
    count = ClientCount(10, 2)
    for number in range(1000):
        count.admit(f"address {number}")
        count.leave(f"address {number}")
    assert count.count == 0
    assert not count._by_address  # noqa: SLF001 - it would be a leak
