"""`twinlog dashboard`: a page that answers whether the data is safe.

Pages are made here, on the server, and kept up to date by server-sent events; a browser without JavaScript shows the same page,
as it was when it was loaded.

    facts -> model/memory.py (snapshot.py: one moment, with what was before) -> model/verdict.py -> view/page.py and what it shows
    watcher.py asks the cluster, for all viewers together; app.py serves.
"""
