"""The Aviato backend: sandboxes at CoreWeave, through the SDK `cwsandbox`.

plan ──▶ backend ──▶ pool ──▶ gateway ──▶ the SDK          in the service
            │
            ├──▶ sandbox, stateful ──▶ execution
            │                             │ frames over the stdin and stdout of a command
            ▼                             ▼
         bundle ── a file ──▶ guest/: the supervisor ── fork ──▶ the submission
"""
