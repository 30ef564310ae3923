"""What several tests in a browser wait for."""


def expect(found):
    """Return Playwright's assertions, which wait, about this locator."""
    from playwright.sync_api import expect as waits_for  # noqa: PLC0415 - where the tests are not left out

    return waits_for(found)


def jobs_link(page, name):
    """Return the link of this job in the table of jobs."""
    return page.get_by_role("region", name="Jobs").get_by_role("link", name=name, exact=True)
