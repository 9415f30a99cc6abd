"""Live streams: answers as samples arrive."""
