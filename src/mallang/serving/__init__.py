"""Serving: trained runs over HTTP, their verbs as REST and, for language models, the API of OpenAI."""
