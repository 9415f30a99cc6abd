"""Models as one page of HTML that runs them in JavaScript: no server, no network.

``described`` turns a plan into data, ``page`` puts it into one file with the scripts of
``assets``; ``node`` calls the model of a page where there is a node, to check it.
"""

from s4d_torch.deploy.export.web.page import PAGE, web_page

__all__ = ["PAGE", "web_page"]
