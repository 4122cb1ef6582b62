"""`make bench`: what an admission costs, beside a raw driver that sends only the requests that the rules need."""
