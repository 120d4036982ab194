"""A page in the browser: paste a molecule or send a file, see what the prediction rests on.

Nothing leaves the machine and nothing is kept: Gradio's analytics and history are switched off
before Gradio is imported.
"""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_RUN_HISTORY"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
