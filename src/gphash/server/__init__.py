"""The service over HTTP: `service.create_app` and `service.run` (the extra ``serve``)."""
