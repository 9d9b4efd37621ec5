"""Queue `chores`: a job, an enabling that stopped short, or a notice has something left to do."""

from mesh import app

handler = app.lazy("chore_worker")
