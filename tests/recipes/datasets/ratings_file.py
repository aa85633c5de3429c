"""Ratings as a file."""


def write(path, ratings):
    """Writes ratings as MovieLens does: `userId,movieId,rating,timestamp`."""
    columns = (
        ratings.user_ids[ratings.users],
        ratings.item_ids[ratings.items],
        ratings.values,
    )
    lines = [
        f"{user},{item},{value},0\n" for user, item, value in zip(*columns)
    ]
    path.write_text("".join(["userId,movieId,rating,timestamp\n", *lines]))
