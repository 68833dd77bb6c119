"""HTTP of a broker or name server: health, metrics, the command line's JSON, events, and role changes with a token.

    service's loop  <- run_sync_soon --  Source   <- asked by -  the HTTP thread's loop: hypercorn, starlette, an Admin of its own

It runs in a thread with a trio loop of its own, so that /livez answers while the service's loop is stalled. Before the service
is ready nothing here is imported but config.py, source.py and sidecar.py.
"""
