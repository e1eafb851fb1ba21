"""Names that everybody knows or that could be anybody's: they tell a place or person from another name, and stand in for one.

The proper names are invented; the rest is geography, first names at large, and words that tell what sort of name it is.
"""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.replace("\n", " ").split(",") if name.strip())


COUNTRIES = _names(
    """Afghanistan, Albania, Algeria, Angola, Argentina, Armenia, Australia, Austria, Azerbaijan, Bahrain, Bangladesh, Belarus,
    Belgium, Benin, Bhutan, Bolivia, Botswana, Brazil, Bulgaria, Burkina Faso, Burundi, Cambodia, Cameroon, Canada, Chad, Chile,
    China, Colombia, Costa Rica, Croatia, Cuba, Cyprus, Czech Republic, Denmark, Ecuador, Egypt, El Salvador, England, Eritrea,
    Estonia, Ethiopia, Fiji, Finland, France, Gabon, Georgia, Germany, Ghana, Greece, Guatemala, Guinea, Haiti, Honduras,
    Hungary, Iceland, India, Indonesia, Iran, Iraq, Ireland, Israel, Italy, Jamaica, Japan, Jordan, Kazakhstan, Kenya, Kuwait,
    Laos, Latvia, Lebanon, Lesotho, Liberia, Libya, Lithuania, Luxembourg, Madagascar, Malawi, Malaysia, Mali, Malta, Mexico,
    Moldova, Mongolia, Montenegro, Morocco, Mozambique, Myanmar, Namibia, Nepal, Netherlands, New Zealand, Nicaragua, Niger,
    Nigeria, North Korea, Northern Ireland, Norway, Oman, Pakistan, Panama, Paraguay, Peru, Philippines, Poland, Portugal,
    Prussia, Qatar, Romania, Russia, Rwanda, Saudi Arabia, Scotland, Senegal, Serbia, Sierra Leone, Singapore, Slovakia,
    Slovenia, Somalia, South Africa, South Korea, Soviet Union, Spain, Sri Lanka, Sudan, Sweden, Switzerland, Syria, Taiwan,
    Tanzania, Thailand, Togo, Trinidad and Tobago, Tunisia, Turkey, Uganda, Ukraine, United Arab Emirates, United Kingdom,
    United States, United States of America, Uruguay, Uzbekistan, Venezuela, Vietnam, Wales, Yemen, Zambia, Zimbabwe"""
)
COUNTRIES_WITH_ARTICLE = (
    "Czech Republic", "Netherlands", "Philippines", "Soviet Union", "United Arab Emirates", "United Kingdom", "United States",
)  # fmt: skip
STATES = _names(
    """Alabama, Alaska, Alberta, Arizona, Arkansas, Bavaria, British Columbia, California, Catalonia, Colorado, Connecticut,
    Delaware, Florida, Hawaii, Hesse, Idaho, Illinois, Indiana, Iowa, Kansas, Kentucky, Louisiana, Maharashtra, Maine, Manitoba,
    Maryland, Massachusetts, Michigan, Minnesota, Mississippi, Missouri, Montana, Nebraska, Nevada, New Brunswick,
    New Hampshire, New Jersey, New Mexico, New South Wales, New York, North Carolina, North Dakota, Nova Scotia, Ohio, Oklahoma,
    Ontario, Oregon, Pennsylvania, Punjab, Quebec, Queensland, Rhode Island, Saskatchewan, Saxony, South Australia,
    South Carolina, South Dakota, Tasmania, Tennessee, Texas, Tuscany, Utah, Vermont, Victoria, Virginia, Washington,
    Western Australia, West Virginia, Wisconsin, Wyoming"""
)
CITIES = _names(
    """Aberdeen, Accra, Adelaide, Algiers, Amsterdam, Athens, Atlanta, Baltimore, Bangkok, Barcelona, Basel, Beijing, Belfast,
    Belgrade, Berlin, Birmingham, Bogota, Boston, Bratislava, Brisbane, Bristol, Brussels, Bucharest, Budapest, Buenos Aires,
    Cairo, Calgary, Cape Town, Cardiff, Chicago, Cleveland, Cologne, Copenhagen, Dallas, Delhi, Denver, Detroit, Dresden, Dublin,
    Edinburgh, Florence, Frankfurt, Geneva, Glasgow, Hamburg, Hanoi, Havana, Helsinki, Hong Kong, Houston, Istanbul, Jakarta,
    Jerusalem, Johannesburg, Karachi, Kingston, Kolkata, Kyoto, Lagos, Las Vegas, Leeds, Lima, Lisbon, Liverpool, London,
    Los Angeles, Lyon, Madrid, Manchester, Manila, Marseille, Melbourne, Memphis, Mexico City, Miami, Milan, Minneapolis,
    Montreal, Moscow, Mumbai, Munich, Nairobi, Naples, Nashville, New Delhi, New Orleans, New York City, Oslo, Ottawa, Oxford,
    Paris, Perth, Philadelphia, Phoenix, Pittsburgh, Prague, Quito, Rio de Janeiro, Rome, Rotterdam, San Diego, San Francisco,
    Santiago, Seattle, Seoul, Seville, Shanghai, Sofia, Stockholm, Stuttgart, Sydney, Tehran, Tokyo, Toronto, Turin, Vancouver,
    Venice, Vienna, Warsaw, Wellington, Winnipeg, Zagreb, Zurich"""
)
TOWNS_WITHIN = (
    ("Lyon", "France"), ("Leeds", "England"), ("Turin", "Italy"), ("Seville", "Spain"), ("Basel", "Switzerland"),
    ("Graz", "Austria"), ("Aarhus", "Denmark"), ("Bergen", "Norway"), ("Ghent", "Belgium"), ("Cork", "Ireland"),
    ("Gdansk", "Poland"), ("Brno", "Czech Republic"), ("Tartu", "Estonia"), ("Kumasi", "Ghana"), ("Mombasa", "Kenya"),
    ("Osaka", "Japan"), ("Busan", "South Korea"), ("Pune", "India"), ("Dayton", "Ohio"), ("Tulsa", "Oklahoma"),
    ("Boise", "Idaho"), ("Tucson", "Arizona"), ("Mobile", "Alabama"), ("Duluth", "Minnesota"), ("Eugene", "Oregon"),
    ("Macon", "Georgia"), ("Provo", "Utah"), ("Halifax", "Nova Scotia"), ("Cairns", "Queensland"), ("Regina", "Saskatchewan"),
)  # fmt: skip
NATIONALITIES = _names(
    """Afghan, African, Albanian, Algerian, American, Argentine, Armenian, Asian, Australian, Austrian, Belgian, Bolivian,
    Brazilian, British, Bulgarian, Canadian, Chilean, Chinese, Colombian, Croatian, Cuban, Czech, Danish, Dutch, Egyptian,
    English, Estonian, Ethiopian, European, Filipino, Finnish, French, Georgian, German, Ghanaian, Greek, Hungarian, Icelandic,
    Indian, Indonesian, Iranian, Iraqi, Irish, Israeli, Italian, Jamaican, Japanese, Kenyan, Korean, Latvian, Lebanese,
    Lithuanian, Malaysian, Mexican, Moroccan, Nepalese, Nigerian, Norwegian, Pakistani, Persian, Peruvian, Polish, Portuguese,
    Romanian, Russian, Scottish, Serbian, Slovak, Slovenian, Spanish, Swedish, Swiss, Syrian, Thai, Tunisian, Turkish, Ukrainian,
    Venezuelan, Vietnamese, Welsh"""
)

WOMEN = _names(
    """Ada, Agnes, Alice, Amanda, Amelia, Amy, Angela, Anna, Anne, Barbara, Beatrice, Bertha, Betty, Carol, Caroline, Catherine,
    Charlotte, Christine, Claire, Clara, Courtney, Cynthia, Daisy, Deborah, Debbie, Diana, Dolores, Dorothy, Edith, Eleanor,
    Elena, Elisabeth, Elizabeth, Ella, Ellen, Emily, Emma, Esther, Eva, Evelyn, Florence, Frances, Gertrude, Gloria, Grace, Greta,
    Hannah, Harriet, Helen, Helena, Ida, Ingrid, Irene, Iris, Isabel, Isabella, Jane, Janet, Jean, Jennifer, Jessica, Joan,
    Josephine, Joyce, Judith, Judy, Julia, Julie, Karen, Kate, Katherine, Kathleen, Kelly, Kristy, Laura, Lillian, Linda, Lisa, Louise,
    Lucy, Lydia, Margaret, Maria, Marie, Marilyn, Marion, Martha, Mary, Mildred, Miriam, Nancy, Natalie, Nicole, Nina, Nora,
    Olga, Olivia, Pamela, Patricia, Paula, Pauline, Rachel, Rebecca, Rita, Rosa, Rose, Ruth, Sandra, Sarah, Sharon, Sheila,
    Sofia, Sophia, Sophie, Stella, Stephanie, Susan, Sylvia, Teresa, Theresa, Ursula, Vera, Virginia, Vivian, Wendy, Zoe"""
)
MEN = _names(
    """Adam, Alan, Albert, Alexander, Alfred, Allen, Andrew, Anthony, Antonio, Arnold, Arthur, Benjamin, Benny, Bernard, Bernhard, Bill,
    Bob, Brian, Bruce, Carl, Carlos, Charles, Chris, Christian, Christopher, Clive, Daniel, David, Dennis, Donald, Douglas, Edgar,
    Edmund, Edward, Edwin, Elton, Eric, Ernest, Eugene, Felix, Francis, Frank, Franklin, Fred, Frederick, Fredric, Gary, Geoffrey, George,
    Gerald, Gilbert, Giles, Gordon, Graham, Gregory, Gustav, Guy, Hans, Harold, Harry, Heinrich, Henri, Henry, Herbert, Herman,
    Howard, Hugh, Hugo, Ian, Isaac, Ivan, Jack, Jacob, Jacques, James, Jason, Jeff, Jeffrey, Jeremy, Jerry, Jim, Joe, Joel,
    Johan, Johann, John, Jonathan, Jose, Joseph, Joshua, Juan, Justin, Karl, Keith, Ken, Kenneth, Kevin, Kurt, Larry, Lawrence, Leo,
    Leonard, Lewis, Lincoln, Lloyd, Louis, Ludwig, Luis, Mario, Mark, Martin, Matthew, Maurice, Max, Michael, Michel, Mickey, Miguel, Mike,
    Nathan, Neil, Nicholas, Nikolai, Norman, Oliver, Oscar, Otto, Patrick, Paul, Pedro, Peter, Philip, Pierre, Ralph, Raoul, Raymond,
    Richard, Robert, Roger, Roland, Ronald, Roy, Rudolf, Rupert, Russell, Samuel, Scott, Sean, Seth, Simon, Stanley, Stephen,
    Steve, Steven, Stuart, Theodore, Thomas, Tim, Timothy, Tom, Tony, Valeri, Victor, Vincent, Walter, Warren, Wilhelm, William, Winston"""
)
SURNAMES = _names(
    """Abbott, Ainsley, Barlow, Bennett, Brandt, Calloway, Carver, Castell, Conway, Dalton, Delacroix, Drummond, Ellery, Fairfax,
    Farrow, Fenwick, Garrick, Hadley, Halloran, Hartmann, Holloway, Ingram, Keller, Kendrick, Langley, Larkin, Lindqvist, Lomax,
    Marchetti, Merrick, Moreau, Novak, Osgood, Pemberton, Prescott, Radcliffe, Ramsay, Redmond, Rossi, Sadler, Sandoval, Selby,
    Sorensen, Stafford, Thorne, Tremaine, Vance, Wakefield, Whitlock, Winslow"""
)
PROPER = _names(
    """Aldine, Arkwell, Ashcombe, Balmoor, Belford, Brackley, Calder, Carrow, Corvane, Dunmere, Eastley, Ellmore, Fairholm,
    Farleigh, Garland, Glenmoor, Hartwell, Hollis, Ivers, Kelmont, Kendal, Lorring, Marlow, Merrin, Mossley, Norvale, Oakham,
    Orrin, Pellam, Quillon, Ravenel, Redfern, Rossmere, Sable, Selwick, Stanmore, Tarrant, Thornby, Torvald, Ulverton, Vantry,
    Wexcombe, Windham, Yarrow"""
)
TITLE_WORDS = _names(
    """Amber, Autumn, Bright, Broken, Copper, Crimson, Distant, Ember, Falcon, Forest, Garden, Golden, Granite, Harbour, Hidden,
    Ivory, Journey, Kingdom, Lantern, Meadow, Midnight, Mirror, Morning, Mountain, Northern, Orchard, Paper, Quiet, River, Sailor,
    Scarlet, Shadow, Silent, Silver, Southern, Summer, Thunder, Twilight, Velvet, Winter"""
)

# Words that tell what a name is, or do not count in it.
SMALL_WORDS = frozenset(
    _names(
        """a, an, and, at, by, de, del, der, di, du, for, from, in, la, le, los, of, on, or, the, to, und, van, von,
    with, y"""
    )
)
PARTICLES = frozenset(
    _names("""al, bin, da, de, del, della, den, der, di, du, el, ibn, la, le, ten, ter, van, von, y""")
)
PLACE_WORDS = frozenset(
    _names(
        """Airport, Avenue, Bay, Beach, Boulevard, Bridge, Canal, Castle, Cathedral, City, Coast, County, Creek, Desert,
    District, Falls, Forest, Gulf, Harbor, Harbour, Highway, Hill, Hills, Island, Islands, Isle, Lake, Lane,
    Mount, Mountain, Mountains, Ocean, Palace, Park, Peninsula, Province, Region, Republic, River, Road, Sea,
    Square, Stadium, Station, Street, Town, Township, Valley, Village"""
    )
)
PLACE_STARTS = frozenset(
    _names("""Cape, Fort, Gulf, Isle, Kingdom, Lake, Mount, Port, Province, Republic, River, Village""")
)
ORGANISATION_WORDS = frozenset(
    _names(
        """Academy, Agency, Airlines, Army, Association, Authority, Bank, Band, Books, Brewery, Brothers, Bureau, Centre,
    Center, Church, Club, College, Commission, Committee, Company, Conservatorium, Corporation, Corps, Council,
    Department, Entertainment, F.C., FC, Foundation, Fund, Group, Hospital, Inc, Inc., Industries, Institute,
    League, Ltd, Ltd., Ministry, Motors, Museum, Networks, Orchestra, Party, Pictures, Press, Productions,
    Publishing, Records, School, Society, Studios, Theatre, Theater, Times, Trust, Union, University"""
    )
)
TITLES = frozenset(
    _names(
        """Baron, Baroness, Bishop, Captain, Colonel, Count, Countess, Dame, Dr, Dr., Duke, Emperor, General,
    King, Lady, Lieutenant, Lord, Major, Mr, Mr., Mrs, Mrs., Ms, Ms., Pope, President, Prince, Princess,
    Professor, Queen, Rev., Saint, Sir, St., Sultan"""
    )
)
SUFFIXES = frozenset(_names("""Jr, Jr., Sr, Sr., II, III, IV"""))
