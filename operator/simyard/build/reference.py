def api_reference() -> str:
    return ""
