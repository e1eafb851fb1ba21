"""What the HTML pages share: one file each that needs no other, safe with any text, drawn and listed in the same way."""
