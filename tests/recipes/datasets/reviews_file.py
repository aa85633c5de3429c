"""Reviews as a file."""

import json


def line(user="u1", item="i1", text="Good, it's GOOD", overall=4.0, **more):
    """One review, as Amazon's data have it."""
    review = {
        "reviewerID": user,
        "asin": item,
        "reviewText": text,
        "overall": overall,
        **more,
    }
    return json.dumps(review)


def write(path, reviews):
    """Writes `reviews.Reviews`, a line each."""
    with open(path, "w", encoding="utf-8") as file:
        for k in range(len(reviews)):
            words = reviews.tokens[reviews.starts[k] : reviews.starts[k + 1]]
            review = line(
                f"user{reviews.users[k]}",
                f"item{reviews.items[k]}",
                " ".join(reviews.words[word] for word in words),
                float(reviews.ratings[k]),
            )
            file.write(review + "\n")
