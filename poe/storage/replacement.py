"""Put a file in place of another."""

from poe.storage.files import Files


def replace_file(files: Files, path: str, content: bytes) -> None:
    """Give a file this content, so that at any time the old one is there, or the new one whole.

    The content survives a power cut; that it has the name needs a sync of the folder.

    Raises:
        OSError: as reported by the file layer.
    """
    file = files.open(path + "_new", "w+")
    file.write_at(content, 0)
    file.sync()
    files.rename(path + "_new", path)
